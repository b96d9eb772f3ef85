"""What each operation does, one module for each kind of resource."""
