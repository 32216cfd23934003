"""Service managers: launchd on a Mac, a user's systemd on Linux.

Each is a pure description (`manager.ServiceManager`): the file that it wants and the commands that it is given. What
runs them and writes files is the application's.
"""
