"""The operator of Millrace: the models and decisions it scales by, and a simulator to try them in."""
