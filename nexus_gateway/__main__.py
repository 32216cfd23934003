"""`python -m nexus_gateway`."""

from nexus_gateway.cli.main import main

if __name__ == "__main__":
    main()
