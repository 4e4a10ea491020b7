"""What a batch of the job costs, learned from its reports, and what it would take under another plan."""
