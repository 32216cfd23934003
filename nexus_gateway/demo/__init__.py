"""The demo: small real servers, a workspace for them, and the turns that show the gateway at work."""
