"""The service's requests and resources, a module a resource."""
