#!/usr/bin/env python3
"""A stalled worker is refused: Python with psycopg2.

    python3 python_postgres.py postgres://user:password@host/database report:42
"""

import sys
import uuid

import psycopg2
from psycopg2.extras import RealDictCursor


def connect(dsn):
    connection = psycopg2.connect(dsn, cursor_factory=RealDictCursor)
    # psycopg2 opens a transaction with the first statement. A lease acquired or renewed in it would be nobody's
    # until some later commit, and its row locked until then.
    connection.autocommit = True
    return connection


def call(connection, routine, *arguments, **named):
    """Calls a routine of the fence. Its answer is always one row."""
    values = ["%s"] * len(arguments) + [f"p_{name} => %s" for name in named]
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM fence.{routine}({', '.join(values)})", [*arguments, *named.values()])
        return cursor.fetchone()


def write_report(connection, resource, owner, generation):
    """Writes to a table of one's own, fenced: check first, in the transaction of the write."""
    with connection:  # BEGIN, although autocommit is on; then COMMIT, or ROLLBACK after an exception
        checked = call(connection, "check", resource, owner, generation)
        if checked["outcome"] == "ok":
            with connection.cursor() as cursor:
                cursor.execute("INSERT INTO report VALUES (%s, %s)", (resource, f"by {owner}"))
    return checked


def refusal(answer):
    """Words a refusal: why, and what the row looked like when it was decided."""
    return "{outcome}, {reason}: {observed_owner} has generation {observed_generation}".format(**answer)


def main(dsn, resource):
    slow, fast = connect(dsn), connect(dsn)

    # The slow worker takes the lease for 1 ms. It will have stalled for longer than that.
    request_id = str(uuid.uuid4())
    lease = call(slow, "acquire", resource, "slow", 1, request_id)
    print("slow acquire: {outcome}, generation {generation}".format(**lease))

    # Had the reply been lost, the same call with the same request_id would bring the same answer.
    again = call(slow, "acquire", resource, "slow", 1, request_id)
    print("slow acquire again: {outcome}, generation {generation}".format(**again))

    # The fast worker asks until the lease has run out, and takes over with the next generation.
    taken = call(fast, "acquire", resource, "fast", 60_000)
    while taken["outcome"] == "held":
        taken = call(fast, "acquire", resource, "fast", 60_000)
    print("fast acquire: {outcome}, generation {generation}".format(**taken))

    # It publishes, and repeats the call as after a lost reply: one operation_key for one result.
    for attempt in ("", " again"):
        published = call(fast, "publish", resource, "fast", taken["generation"], '{"rows": 12}', operation_key="build-1")
        print(f"fast publish{attempt}:", "{outcome}, revision {revision}".format(**published))

    # The slow worker wakes up. Its own clock tells it nothing; its generation tells the database.
    rejected = call(slow, "publish", resource, "slow", lease["generation"], '{"rows": 11}', operation_key="build-1")
    print("slow publish:", refusal(rejected))

    print("slow check:", refusal(write_report(slow, resource, "slow", lease["generation"])))
    print("fast check:", write_report(fast, resource, "fast", taken["generation"])["outcome"])

    released = call(fast, "release", resource, "fast", taken["generation"])
    print("fast release:", released["outcome"])


if __name__ == "__main__":
    main(*sys.argv[1:])
