"""Queries of one namespace in clusters in memory, each with an operator of its own, as if each were a shard."""

from datetime import timedelta

import yaml

from millrace_operator.lifecycle.connections.connection_rollouts import ConnectionRollouts
from millrace_operator.lifecycle.observed_query import QueryKey

from .cluster import KEY, NOW, Cluster, copied


class Member(Cluster):
    """One query of a fleet. Its operator sees the other queries as far as they were delivered to it."""

    def __init__(self, name, fleet):
        self.key = QueryKey(KEY.namespace, name)
        self.fleet = fleet
        super().__init__()

    @property
    def time(self):
        return self.fleet.time

    @time.setter
    def time(self, value):
        self.fleet.time = value

    @property
    def name(self):
        return self.key.name

    @property
    def is_ready(self):
        return self.pod is not None and bool(self.pod["status"].get("conditions"))

    @property
    def update(self):
        """How far the query follows its only Connection."""
        (found,) = self.status.connections
        return found.update and str(found.update)

    @property
    def brokers(self):
        """The brokers that its driver has."""
        document = yaml.safe_load(self.configuration(("Pod", f"{self.name}-driver-0"))["data"]["query.yaml"])
        return document["spec"]["sink"]["kafka"]["bootstrapServers"]

    def put(self, text, annotations=None):
        document = yaml.safe_load(text)
        document["metadata"]["name"] = self.name
        return super().put(yaml.safe_dump(document), annotations)

    def become_ready(self):
        if self.pod is not None and not self.is_ready:
            self.pod_is_ready(("Pod", f"{self.name}-driver-0"))

    def start_operator(self):
        super().start_operator()
        self.reconciler.rollouts = ConnectionRollouts(self.fleet.most)
        self.fleet.list_for(self)


class Fleet:
    """Queries by name, of one namespace and one time.

    Args:
        names: the names of the queries.
        text: the query that each of them is.
        connection: the Connection that it names.
        most: drivers that are replaced at the same time.
    """

    def __init__(self, names, text, connection, most=1):
        self.time, self.most, self.connection = NOW, most, connection
        self.members = []
        self.members += [Member(name, self) for name in names]
        for each in self.members:
            each.put(text)
        self.settle()
        for each in self.members:
            each.become_ready()
        self.pass_time(seconds=61)

    def list_for(self, member):
        """Let the operator of a member see everything as it is now."""
        member.reconciler.observations.connection_seen(copied(self.connection))
        for each in self.members:
            self.deliver(each, member)

    def deliver(self, subject, observer):
        """Let the operator of one member see the query of another one."""
        if subject.query is None:
            observer.reconciler.rollouts.note({"metadata": {**subject.key._asdict(), "uid": "u"}}, gone=True)
        else:
            observer.reconciler.rollouts.note(copied(subject.query))

    def settle(self):
        """Deliver everything, and let the operators work until nothing changes."""
        for _ in range(20):
            before = copied([each.query for each in self.members])
            for each in self.members:
                self.list_for(each)
                each.settle()
            if [each.query for each in self.members] == before:
                return
        raise AssertionError("the fleet does not settle")

    def pass_time(self, **span):
        """Let time pass, and let the operators work after that."""
        self.time += timedelta(**span)
        self.settle()

    def not_ready(self):
        """Names of the queries whose drivers are not ready."""
        return [each.name for each in self.members if not each.is_ready]

    def __getitem__(self, name):
        return next(each for each in self.members if each.name == name)
