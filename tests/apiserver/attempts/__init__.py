"""Attempts of a tenant, with all rights of one namespace, to reach another tenant or the operator. None works."""
