"""What is sent once, complete and pure: a message, a passcode, a purchase, a row of the contact list."""
