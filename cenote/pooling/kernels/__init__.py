"""Fast CPU forms of pools, with hand-written backward passes. The tests prove them equal to the
plain forms.
"""
