"""What a try needs of the provider's own database beside delivery tracking."""
