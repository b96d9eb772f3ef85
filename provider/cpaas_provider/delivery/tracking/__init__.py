"""What is stored of requests and of the delivery reports about them."""
