"""Measurements that a user can repeat. Knows the gateway as a command that is started, none of its insides."""
