"""How the replicas of a query, in processes of their own, cooperate: what they exchange over the control topic.

``protocol`` is what a replica's loop calls, and ``choosing`` returns the cooperation of an algorithm. It is pure: no
Kafka, no clock. Records have a key, such as ``state/3`` of replica 3, and a value in the format of ``values``. All
replicas read them in one order, that of the topic's one partition. A record that is lost, late, damaged or repeated
costs locality or balance for a while. It never stops a replica, and never changes a result.
"""
