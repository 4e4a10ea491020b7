"""What work costs as it grows: keys, state partitions, records, results and executors, beside other engines."""
