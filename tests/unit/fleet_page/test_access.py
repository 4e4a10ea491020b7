import pytest
from kubernetes.client import ApiException

from millrace_operator.kube.review_api import User
from millrace_operator.page.access import FRESH_SECONDS, REVIEW_SECONDS, REVIEWS_BURST, Access, ReviewCache
from millrace_operator.page.sessions import MOST_OF_USER, MOST_SESSIONS, SESSION_SECONDS, Sessions

from .fleets import ReviewsByList


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def user(name):
    return User(f"system:serviceaccount:{name}")


def test_who_may_list_all_queries_costs_one_review(clock):
    reviews = ReviewsByList(admin=None)
    visible = Access(reviews, clock).visible(user("admin"), ["cabs", "shops"])
    assert "cabs" in visible
    assert "elsewhere" in visible
    assert reviews.asked == [("list", "", "")]


def test_a_tenant_sees_the_namespaces_whose_queries_they_may_list(clock):
    visible = Access(ReviewsByList(cabs=["cabs"]), clock).visible(user("cabs"), ["cabs", "shops"])
    assert visible.is_complete
    assert ("cabs" in visible, "shops" in visible) == (True, False)


def test_reviews_count_for_a_minute(clock):
    reviews = ReviewsByList(cabs=["cabs"])
    access = Access(reviews, clock)
    access.user_of("cabs")
    access.visible(user("cabs"), ["cabs"])
    asked = len(reviews.asked)
    clock.now += FRESH_SECONDS - 1
    access.user_of("cabs")
    access.visible(user("cabs"), ["cabs"])
    assert len(reviews.asked) == asked
    reviews.rights = {"cabs": []}  # the role binding was deleted
    clock.now += 1
    assert "cabs" not in access.visible(user("cabs"), ["cabs"])
    reviews.rights = {}  # the account was deleted
    assert access.user_of("cabs") is None


def test_one_query_may_be_seen_by_a_right_to_get_it(clock):
    access = Access(ReviewsByList(guest=["cabs/fares"]), clock)
    assert access.may_see(user("guest"), "cabs", "fares")
    assert not access.may_see(user("guest"), "cabs", "trips")


def test_users_with_equal_names_and_other_groups_are_reviewed_apart(clock):
    reviews = ReviewsByList(cabs=["cabs"])
    access = Access(reviews, clock)
    access.may_see(User("system:serviceaccount:cabs"), "cabs", "fares")
    asked = len(reviews.asked)
    access.may_see(User("system:serviceaccount:cabs", groups=("others",)), "cabs", "fares")
    assert len(reviews.asked) > asked


def test_what_the_api_server_is_too_slow_to_review_is_not_shown_until_it_has(clock):
    names = [f"team-{number}" for number in range(4)]
    access = Access(SlowReviews(clock, REVIEW_SECONDS / 2, cabs=names), clock)
    first = access.visible(user("cabs"), names)
    assert not first.is_complete
    assert first.namespaces < set(names)
    assert access.visible(user("cabs"), names).is_complete
    assert access.visible(user("cabs"), names).namespaces == set(names)


class SlowReviews(ReviewsByList):
    """Reviews that take time of a clock each."""

    def __init__(self, clock, seconds, **rights):
        super().__init__(**rights)
        self._clock, self._seconds = clock, seconds

    def may(self, *arguments):
        self._clock.now += self._seconds
        return super().may(*arguments)


def test_the_last_names_are_reviewed_although_the_first_ones_are_old_again_by_then(clock):
    names = [f"team-{number:02}" for number in range(40)]
    access = Access(SlowReviews(clock, REVIEW_SECONDS / 4, cabs=names), clock)
    seen = set()
    for _ in range(12):
        seen |= access.visible(user("cabs"), names).namespaces
        clock.now += FRESH_SECONDS / 2
    assert seen == set(names)


def test_scans_of_one_user_and_of_many_users_do_not_run_at_the_same_time(clock):
    class Interrupted(ReviewsByList):
        """Reviews during one of which something else happens."""

        meanwhile = None

        def may(self, who, verb, namespace="", name=""):
            act, self.meanwhile = (self.meanwhile, None) if namespace else (None, self.meanwhile)
            if act is not None:
                act()
            return super().may(who, verb, namespace, name)

    def second():
        by_another_token = User(user("cabs").name, extra=(("authentication.kubernetes.io/credential-id", ("JTI=2",)),))
        complete["cabs"] = access.visible(by_another_token, names).is_complete
        reviews.meanwhile = lambda: complete.update(taxis=is_complete("taxis"))
        complete["shops"] = is_complete("shops")

    def is_complete(name):
        return access.visible(user(name), names).is_complete

    names, complete = ["cabs", "shops"], {}
    reviews = Interrupted(cabs=names, shops=names, taxis=names)
    access = Access(reviews, clock)
    reviews.meanwhile = second
    assert is_complete("cabs")
    assert complete == {"cabs": False, "shops": True, "taxis": False}
    assert is_complete("taxis")


def test_all_users_share_a_budget_of_reviews(clock):
    names = [f"team-{number}" for number in range(REVIEWS_BURST)]
    reviews = ReviewsByList(cabs=names, shops=names)
    access = Access(reviews, clock)
    assert not access.visible(user("cabs"), names).is_complete
    assert access.visible(user("shops"), names).namespaces == set()
    assert len(reviews.asked) <= REVIEWS_BURST + 1
    clock.now += 1.0
    assert access.visible(user("cabs"), names).is_complete


def test_an_api_server_that_does_not_answer_is_asked_again(clock):
    reviews = ReviewsByList(cabs=["cabs"])
    access = Access(reviews, clock)
    reviews.error = ApiException(status=503)
    with pytest.raises(ApiException):
        access.user_of("cabs")
    reviews.error = None
    assert access.user_of("cabs") == user("cabs")


def test_a_bounded_number_of_reviews_is_remembered(clock):
    cache = ReviewCache(3, clock)
    for number in range(9):
        cache.get(number, lambda number=number: number + 1)
    assert len(cache) == 3
    assert cache.get(8, lambda: 0) == 9


def test_a_session_has_the_token_until_it_ends(clock):
    sessions = Sessions(clock)
    number = sessions.begin("cabs", "secret")
    assert sessions.token(number) == "secret"
    assert sessions.token(f"{number}x") is None
    clock.now += SESSION_SECONDS
    assert sessions.token(number) is None
    assert len(sessions) == 0


def test_a_session_that_was_ended_is_gone(clock):
    sessions = Sessions(clock)
    number = sessions.begin("cabs", "secret")
    sessions.end(number)
    assert sessions.token(number) is None


def test_a_user_who_logs_in_often_ends_their_own_oldest_sessions(clock):
    sessions = Sessions(clock)
    other = sessions.begin("shops", "secret")
    numbers = [sessions.begin("cabs", "secret") for _ in range(MOST_OF_USER + 3)]
    assert [sessions.token(each) is None for each in numbers] == [True] * 3 + [False] * MOST_OF_USER
    assert sessions.token(other) == "secret"


def test_a_bounded_number_of_sessions_is_kept(clock):
    sessions = Sessions(clock)
    for number in range(MOST_SESSIONS + 5):
        sessions.begin(f"user-{number}", "secret")
    assert len(sessions) == MOST_SESSIONS


def test_a_full_store_ends_the_oldest_session_of_the_user_with_the_most(clock):
    sessions = Sessions(clock)
    other = sessions.begin("shops", "secret")
    many = [sessions.begin("cabs", "secret") for _ in range(3)]
    while len(sessions) < MOST_SESSIONS:
        sessions.begin(f"user-{len(sessions)}", "secret")
    sessions.begin("late", "secret")
    assert [sessions.token(each) for each in (other, *many)] == ["secret", None, "secret", "secret"]


def test_a_full_store_forgets_sessions_that_have_ended_first(clock):
    sessions = Sessions(clock)
    sessions.begin("shops", "secret")
    clock.now += SESSION_SECONDS
    many = [sessions.begin("cabs", "secret") for _ in range(2)]
    while len(sessions) < MOST_SESSIONS:
        sessions.begin(f"user-{len(sessions)}", "secret")
    sessions.begin("late", "secret")
    assert [sessions.token(each) for each in many] == ["secret"] * 2
