"""The service's requests and resources, one module for each kind of resource."""
