"""What goes on in the driver beside the query: following the plan, watching batches, telling what is seen."""
