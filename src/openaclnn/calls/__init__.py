"""How a call is made: plain, in two phases, or only explained."""
