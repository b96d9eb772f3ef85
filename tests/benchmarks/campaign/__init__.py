"""How fast a campaign is beside its peers, and what a large one takes of memory."""
