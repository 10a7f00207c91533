-- Takes the lease of a resource and gives out its next generation, if nobody holds it.
--
-- Parameters  p_resource    what is worked on
--             p_owner       who asks (host, pod, run id)
--             p_ttl_ms      how long until another may take over, ms
--             p_request_id  names this request: a repeated call with it gets the same generation again; NULL: none
--             p_attributes  a JSON object that others see while this owner holds the lease, up to 4,096 bytes
-- Result      one row: outcome; generation (NULL when held); lease_until; remaining_ms (0 to ttl);
--             holder (NULL when replayed after a release); holder_attributes
-- Outcomes    acquired · held (another acquisition is alive) · replayed (this request was granted before and
--             is still the latest; nothing was changed)
-- Locks       lease, lease_term, then epoch and floor as next_generation says; none when held or replayed is
--             seen by the plain read. Each wait is bounded: 55P03 after 5 s, or the caller's own lock_timeout
-- Errors      FN001 invalid argument; 40001 retry the transaction; 55P03 a transaction holds the row: busy
CREATE OR REPLACE FUNCTION fence.acquire(
    p_resource text,
    p_owner text,
    p_ttl_ms bigint,
    p_request_id uuid DEFAULT NULL,
    p_attributes jsonb DEFAULT NULL)
RETURNS TABLE (
    outcome text,
    generation bigint,
    lease_until timestamptz,
    remaining_ms bigint,
    holder text,
    holder_attributes jsonb)
LANGUAGE plpgsql
VOLATILE
SECURITY DEFINER
SET search_path = pg_catalog, fence, pg_temp
AS $$
DECLARE
    v_ignored boolean;
    v_lock_timeout text;
    v_clock timestamptz;
    v_seen_generation bigint;
    v_row_generation bigint;
    v_row_owner text;
    v_row_request uuid;
    v_row_floor bigint;
    v_row_epoch bigint;
    v_term_generation bigint;
    v_term_owner text;
    v_term_attributes jsonb;
    v_term_ttl_ms bigint;
    v_term_until timestamptz;
    v_term_released_at timestamptz;
    v_next bigint[]; -- generation, epoch
BEGIN
    v_ignored := fence.assert_token(p_resource, p_owner, 1)
                 AND fence.assert_duration(p_ttl_ms, 'ttl_ms');
    IF p_attributes IS NOT NULL THEN
        IF jsonb_typeof(p_attributes) <> 'object' OR octet_length(p_attributes::text) > 4096 THEN
            RAISE EXCEPTION 'invalid argument attributes: it must be a JSON object of at most 4096 bytes'
                USING ERRCODE = 'FN001', COLUMN = 'attributes';
        END IF;
    END IF;

    -- Read: clock first, then the time row, without a lock. A caller who is refused here holds no row lock
    -- until its transaction ends, and cannot starve the holder.
    v_clock := clock_timestamp();
    SELECT t.generation, t.generation, t.owner, t.attributes, t.ttl_ms, t.lease_until, t.released_at
      INTO v_seen_generation, v_term_generation, v_term_owner, v_term_attributes, v_term_ttl_ms, v_term_until, v_term_released_at
      FROM fence.lease_term t
     WHERE t.resource = p_resource;

    IF p_request_id IS NOT NULL AND v_term_owner = p_owner THEN
        SELECT l.generation, l.owner, l.request_id
          INTO v_row_generation, v_row_owner, v_row_request
          FROM fence.lease l
         WHERE l.resource = p_resource;
        IF v_row_request = p_request_id AND v_row_owner = p_owner AND v_row_generation = v_term_generation THEN
            outcome := 'replayed';
        END IF;
    END IF;
    IF outcome IS NULL AND v_term_released_at IS NULL AND v_term_until > v_clock THEN
        outcome := 'held';
    END IF;

    IF outcome IS NULL THEN
        -- Lock: identity, then time.
        v_lock_timeout := current_setting('lock_timeout');
        v_ignored := fence.bound_lock_wait(v_lock_timeout);
        SELECT l.generation, l.owner, l.request_id, l.floor, l.epoch
          INTO v_row_generation, v_row_owner, v_row_request, v_row_floor, v_row_epoch
          FROM fence.lease l
         WHERE l.resource = p_resource
           FOR NO KEY UPDATE;

        IF v_row_generation IS NULL THEN
            -- An absent row cannot be locked: of many first callers one inserts it, the others wait for that
            -- one here, and all of them decide on the same row below.
            INSERT INTO fence.lease (resource, generation, acquired_at, released_at)
            VALUES (p_resource, 0, v_clock, v_clock)
            ON CONFLICT (resource) DO NOTHING;
            INSERT INTO fence.lease_term (resource, generation, ttl_ms, lease_until, released_at, renewed_at)
            VALUES (p_resource, 0, 1, v_clock, v_clock, v_clock)
            ON CONFLICT (resource) DO NOTHING;
            SELECT l.generation, l.owner, l.request_id, l.floor, l.epoch
              INTO v_row_generation, v_row_owner, v_row_request, v_row_floor, v_row_epoch
              FROM fence.lease l
             WHERE l.resource = p_resource
               FOR NO KEY UPDATE;
            IF v_row_generation IS NULL THEN
                RAISE EXCEPTION 'the resource was removed in the meantime: retry the transaction'
                    USING ERRCODE = '40001';
            END IF;
        END IF;

        -- Another acquisition came first while we waited. Its holder renews the time row: look at that row
        -- before locking it, so that a caller who lost the race does not stop the winner's renewals.
        IF v_seen_generation IS NULL OR v_row_generation <> v_seen_generation THEN
            v_clock := clock_timestamp();
            SELECT t.generation, t.owner, t.attributes, t.ttl_ms, t.lease_until, t.released_at
              INTO v_term_generation, v_term_owner, v_term_attributes, v_term_ttl_ms, v_term_until, v_term_released_at
              FROM fence.lease_term t
             WHERE t.resource = p_resource;
            IF v_row_request = p_request_id AND v_row_owner = p_owner THEN
                outcome := 'replayed';
            ELSIF v_term_released_at IS NULL AND v_term_until > v_clock THEN
                outcome := 'held';
            END IF;
        END IF;
    END IF;

    IF outcome IS NULL THEN
        SELECT t.generation, t.owner, t.attributes, t.ttl_ms, t.lease_until, t.released_at
          INTO v_term_generation, v_term_owner, v_term_attributes, v_term_ttl_ms, v_term_until, v_term_released_at
          FROM fence.lease_term t
         WHERE t.resource = p_resource
           FOR NO KEY UPDATE;

        -- The number, after the lease is locked: raise_floor waits for that lock. As a rule the database is still
        -- the one that the epoch names, the commit is durable and the snapshot is of now; next_generation sees to
        -- what is not. LIMIT 1 tells the planner that there is one row: for many it would compile the plan (jit).
        SELECT CASE WHEN coalesce(e.timeline = fence.timeline(), false) -- first: without a timeline the next is refused
                     AND e.system_identifier = (pg_control_system()).system_identifier
                     AND current_setting('synchronous_commit') <> 'off'
                     AND current_setting('transaction_isolation') IN ('read committed', 'read uncommitted')
                    THEN fence.next_number(v_row_generation, v_row_floor, v_row_epoch, f.at_least, e.epoch)
                    ELSE fence.next_generation(v_row_generation, v_row_floor, v_row_epoch) END
          INTO v_next
          FROM (SELECT at_least FROM fence.floor LIMIT 1) f
          CROSS JOIN (SELECT epoch, system_identifier, timeline FROM fence.epoch LIMIT 1) e;

        -- Clock: after the last wait. Read any earlier, it would call a lease dead that was renewed while
        -- we waited, or grant one that has already run out: see docs/semantics.md#clock.
        v_clock := clock_timestamp();

        -- Decide.
        IF v_row_request = p_request_id AND v_row_owner = p_owner THEN
            outcome := 'replayed';
        ELSIF v_term_released_at IS NULL AND v_term_until > v_clock THEN
            outcome := 'held';
        ELSE
            -- Write, and give the caller's bound on waiting back.
            WITH identity AS (
                UPDATE fence.lease l
                   SET generation = v_next[1],
                       owner = p_owner,
                       acquired_at = v_clock,
                       released_at = NULL,
                       request_id = p_request_id,
                       epoch = v_next[2]
                 WHERE l.resource = p_resource
            )
            UPDATE fence.lease_term t
               SET generation = v_next[1],
                   owner = p_owner,
                   attributes = p_attributes,
                   ttl_ms = p_ttl_ms,
                   lease_until = v_clock + p_ttl_ms * interval '1 millisecond',
                   released_at = NULL,
                   renewed_at = v_clock,
                   renewals = 0
             WHERE t.resource = p_resource
            RETURNING 'acquired', t.generation, t.lease_until, t.ttl_ms, t.owner, t.attributes, set_config('lock_timeout', v_lock_timeout, true)
                 INTO outcome, generation, lease_until, remaining_ms, holder, holder_attributes, v_lock_timeout;
            RETURN NEXT;
            RETURN;
        END IF;
    END IF;

    IF v_lock_timeout IS NOT NULL THEN
        v_lock_timeout := set_config('lock_timeout', v_lock_timeout, true);
        IF outcome = 'held' THEN
            -- Refused with the lock in hand: an idle transaction must not hold up the holder.
            v_ignored := fence.bound_idle_time(v_term_ttl_ms);
        END IF;
    END IF;

    lease_until := v_term_until;
    IF outcome <> 'held' THEN
        generation := v_term_generation;
    END IF;
    IF v_term_released_at IS NULL THEN
        remaining_ms := least(v_term_ttl_ms, greatest(0, ceil(extract(epoch FROM v_term_until - v_clock) * 1000)));
        holder := v_term_owner;
        holder_attributes := v_term_attributes;
    ELSE
        remaining_ms := 0;
    END IF;
    RETURN NEXT;
END;
$$;
