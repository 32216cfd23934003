"""One agent turn: route, write the arguments, check, confirm, call.

Below: the routing index, an `ArgumentEngine`, the fleet. Knows nothing of the host's protocol: what it
needs from a user it returns as a question.
"""
