"""The HTTP front: a process of its own, so that neither JSON nor a slow client ever holds up a step."""
