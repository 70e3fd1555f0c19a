"""Ours beside what else one could take: the same cut, the same boards, taking turns."""
