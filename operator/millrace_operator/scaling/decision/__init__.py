"""The scaling decision: what is needed, which shape provides it for the fewest cores, and what speaks against it.

It imports the rest of scaling, which does not import it.
"""
