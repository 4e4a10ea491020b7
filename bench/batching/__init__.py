"""The batching layer between real processes over TCP: Figures 4.5 to 4.9 and 4.11 to 4.14 of paper 002, as ratios."""
