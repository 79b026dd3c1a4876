"""From a source named in the inventory to a verified file in the controller's cache. Knows no host, no role and no screen.

`resolve` is the way in. What needs the network (`web`, `index`, `transfer`) is imported only once the cache has missed.
"""
