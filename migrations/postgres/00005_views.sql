-- What a person, a dashboard or `fencectl leases` reads. Columns are only ever appended.

-- +goose Up

-- One row a resource. blocked_by_* names the session whose open transaction holds the row and so makes a
-- take-over wait: it is found by the row's locker (xmax), a number that pg_locks shows only while that
-- transaction lives. What this user may not see of another session is NULL.
CREATE VIEW fence.lease_status AS
SELECT l.resource,
       CASE WHEN l.generation = 0 THEN 'unused'
            WHEN l.owner IS NULL THEN 'seized'
            WHEN l.released_at IS NOT NULL THEN 'released'
            WHEN t.lease_until <= clock_timestamp() THEN 'expired'
            ELSE 'live' END AS state,
       l.generation,
       l.owner,
       t.attributes,
       l.acquired_at,
       t.renewed_at,
       t.renewals,
       t.ttl_ms,
       t.lease_until,
       CASE WHEN l.released_at IS NULL
            THEN least(t.ttl_ms, greatest(0, ceil(extract(epoch FROM t.lease_until - clock_timestamp()) * 1000)::bigint))
            ELSE 0 END AS remaining_ms,
       l.released_at,
       l.accepted_generation,
       l.revision,
       l.floor,
       b.pid AS blocked_by_pid,
       a.usename::text AS blocked_by_user,
       a.application_name AS blocked_by_application,
       a.state AS blocked_by_state,
       a.xact_start AS blocked_since
  FROM fence.lease l
  JOIN fence.lease_term t ON t.resource = l.resource
  LEFT JOIN LATERAL (SELECT k.pid
                       FROM pg_catalog.pg_locks k
                      WHERE k.locktype = 'transactionid' AND k.granted AND k.mode = 'ExclusiveLock'
                        AND k.transactionid IN (l.xmax, t.xmax)
                      ORDER BY k.transactionid = l.xmax DESC
                      LIMIT 1) b ON true
  LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = b.pid;

CREATE VIEW fence.rejections AS
SELECT r.resource, r.operation, r.reason, r.generation, r.owner, r.occurrences, r.first_at, r.last_at,
       r.observed_generation, r.observed_owner, r.observed_lease_until, r.observed_at
  FROM fence.rejection r;

CREATE VIEW fence.rejections_by_reason AS
SELECT r.operation, r.reason, date_trunc('hour', r.first_at, 'UTC') AS hour,
       sum(r.occurrences)::bigint AS occurrences, count(DISTINCT r.resource) AS resources
  FROM fence.rejection r
 GROUP BY r.operation, r.reason, date_trunc('hour', r.first_at, 'UTC');

CREATE VIEW fence.publications AS
SELECT p.resource, p.revision, p.generation, p.owner, p.content_type, p.payload, p.source_as_of,
       p.published_at, p.late_ms
  FROM fence.publication p;

CREATE VIEW fence.late_publications AS
SELECT p.resource, p.revision, p.generation, p.owner, p.late_ms, p.published_at
  FROM fence.late_publication p;

-- +goose Down

DROP VIEW fence.late_publications;
DROP VIEW fence.publications;
DROP VIEW fence.rejections_by_reason;
DROP VIEW fence.rejections;
DROP VIEW fence.lease_status;
