"""The CustomResourceDefinition, the reference made from it, and what may change from one release to the next."""
