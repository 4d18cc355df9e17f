"""The dashboard as an installed app."""

from audit.dashboard.app import main

main()
