"""An attack on the package: random calls through Python and through C that must be right, or refused with a documented
status. `make attack` runs it for as long as ATTACK_SECONDS says; tests/test_attack.py is the short form.
"""
