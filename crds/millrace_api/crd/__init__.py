"""The CustomResourceDefinition, the reference made from it, and the check of what changes between releases."""
