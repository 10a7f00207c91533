-- Stores a result, if the caller's acquisition of the resource still counts.
--
-- Parameters  p_resource, p_owner, p_generation  the token
--             p_payload            the result
--             p_content_type       what it is; 1 to 255 characters
--             p_operation_key      names this call within its generation: a repeated call gets the first answer; NULL: none
--             p_policy             until_superseded: counts until another acquisition took over; unexpired: and
--                                  only while the lease lasts
--             p_source_as_of       how old the data is that the result was made from; NULL: not known
--             p_max_source_age_ms  refuse older data, ms; NULL: no limit
--             p_then_release       release the lease in the same commit
-- Result      one row: outcome; reason (NULL unless rejected); published_at; revision; late_ms (how long after
--             lease_until it was accepted, NULL: in time); attempted_at; when rejected the observation:
--             observed_generation, observed_owner, observed_lease_until, observed_at
-- Outcomes    accepted · replayed (this operation key was accepted before; its answer again) · rejected
-- Reasons     not_found · superseded · ahead_of_issuer · wrong_owner · released · expired (unexpired only) ·
--             stale_source · key_conflict (the key was accepted with other content)
-- Locks       lease, (then_release: lease_term,) publication; none when it is rejected or replayed
-- Errors      FN001 invalid argument; 40001 retry the transaction
CREATE OR REPLACE FUNCTION fence.publish(
    p_resource text,
    p_owner text,
    p_generation bigint,
    p_payload text,
    p_content_type text DEFAULT 'application/json',
    p_operation_key text DEFAULT NULL,
    p_policy text DEFAULT 'until_superseded',
    p_source_as_of timestamptz DEFAULT NULL,
    p_max_source_age_ms bigint DEFAULT NULL,
    p_then_release boolean DEFAULT false)
RETURNS TABLE (
    outcome text,
    reason text,
    published_at timestamptz,
    revision bigint,
    late_ms bigint,
    attempted_at timestamptz,
    observed_generation bigint,
    observed_owner text,
    observed_lease_until timestamptz,
    observed_at timestamptz)
LANGUAGE plpgsql
VOLATILE
SECURITY DEFINER
SET search_path = pg_catalog, fence, pg_temp
AS $$
DECLARE
    v_ignored boolean;
    v_plain boolean := true; -- the fence alone has a say: no key, no policy, no age, no release
    v_locked boolean := true;
    v_clock timestamptz;
    v_fingerprint bytea;
    v_row_generation bigint;
    v_row_owner text;
    v_row_released_at timestamptz;
    v_row_revision bigint;
    v_term_until timestamptz;
    v_key_fingerprint bytea;
    v_key_revision bigint;
    v_key_published_at timestamptz;
    v_key_late_ms bigint;
BEGIN
    v_ignored := fence.assert_token(p_resource, p_owner, p_generation);
    IF (p_content_type = 'application/json' AND p_policy = 'until_superseded' AND p_payload IS NOT NULL
        AND p_operation_key IS NULL AND p_max_source_age_ms IS NULL AND NOT p_then_release) IS NOT TRUE THEN
        -- Something is not as it is most of the time: only then all of it is looked at.
        v_ignored := fence.assert_name(p_content_type, 'content_type');
        v_ignored := fence.assert_policy(p_policy);
        IF p_payload IS NULL THEN
            RAISE EXCEPTION 'invalid argument payload: it must not be NULL'
                USING ERRCODE = 'FN001', COLUMN = 'payload';
        END IF;
        IF p_then_release IS NULL THEN
            RAISE EXCEPTION 'invalid argument then_release: it must not be NULL'
                USING ERRCODE = 'FN001', COLUMN = 'then_release';
        END IF;
        IF p_max_source_age_ms IS NOT NULL THEN
            v_ignored := fence.assert_duration(p_max_source_age_ms, 'max_source_age_ms');
            IF p_source_as_of IS NULL THEN
                RAISE EXCEPTION 'invalid argument source_as_of: it must not be NULL when max_source_age_ms is given'
                    USING ERRCODE = 'FN001', COLUMN = 'source_as_of';
            END IF;
        END IF;
        IF p_operation_key IS NOT NULL THEN
            v_ignored := fence.assert_name(p_operation_key, 'operation_key');
            v_fingerprint := sha256(convert_to(
                concat_ws(E'\n', p_content_type, p_policy, p_then_release::text, p_payload), 'UTF8'));
        END IF;
        v_plain := false;
    END IF;

    -- Read: clock first, then the rows, without a lock. The lease before the key, so that a retry which
    -- overlaps its own then_release finds the key that was committed with the release. Where the fence alone
    -- has a say, the locking read below answers the same question.
    attempted_at := clock_timestamp();
    IF NOT v_plain THEN
        v_clock := attempted_at;
        SELECT l.generation, l.owner, l.released_at
          INTO v_row_generation, v_row_owner, v_row_released_at
          FROM fence.lease l
         WHERE l.resource = p_resource;
        IF p_policy = 'unexpired' THEN
            -- Of that acquisition only: a later one's time says nothing about this caller.
            SELECT t.lease_until INTO v_term_until
              FROM fence.lease_term t
             WHERE t.resource = p_resource AND t.generation = v_row_generation;
        END IF;
        IF p_operation_key IS NOT NULL THEN
            SELECT k.fingerprint, k.revision, k.published_at, k.late_ms
              INTO v_key_fingerprint, v_key_revision, v_key_published_at, v_key_late_ms
              FROM fence.publication_key k
             WHERE k.resource = p_resource AND k.generation = p_generation
               AND k.owner = p_owner AND k.operation_key = p_operation_key;
        END IF;
        IF v_key_fingerprint = v_fingerprint THEN
            outcome := 'replayed';
        ELSE
            reason := coalesce(
                fence.refusal_reason(p_generation, p_owner, v_row_generation, v_row_owner, v_row_released_at),
                fence.time_reason(p_policy, v_term_until, v_clock, p_source_as_of, p_max_source_age_ms),
                CASE WHEN v_key_fingerprint <> v_fingerprint THEN 'key_conflict' END);
        END IF;
    END IF;

    IF outcome IS NULL AND reason IS NULL THEN
        -- Lock the identity, so that no take-over commits before we do. Only what would be accepted: a row that
        -- does not fit the token is not waited for and not locked. A take-over that we waited for makes the row
        -- unfit, too.
        SELECT l.generation, l.owner, l.revision
          INTO v_row_generation, v_row_owner, v_row_revision
          FROM fence.lease l
         WHERE l.resource = p_resource
           AND l.generation = p_generation AND l.owner = p_owner AND l.released_at IS NULL
           FOR NO KEY UPDATE;
        IF v_row_generation IS NULL THEN
            -- Read why: what refuses is final.
            SELECT l.generation, l.owner, l.released_at, l.xmax = pg_current_xact_id_if_assigned()::xid
              INTO v_row_generation, v_row_owner, v_row_released_at, v_locked
              FROM fence.lease l
             WHERE l.resource = p_resource;
            reason := fence.refusal_reason(p_generation, p_owner, v_row_generation, v_row_owner, v_row_released_at);
            IF reason IS NULL THEN
                RAISE EXCEPTION 'the acquisition committed while this call ran: retry the transaction'
                    USING ERRCODE = '40001';
            END IF;
        END IF;
        IF NOT v_plain THEN
            -- A caller that was overtaken while it waited must not hold up the new holder's renewals.
            IF p_then_release AND reason IS NULL THEN
                SELECT t.lease_until INTO v_term_until
                  FROM fence.lease_term t
                 WHERE t.resource = p_resource
                   FOR NO KEY UPDATE;
            END IF;
            IF p_operation_key IS NOT NULL THEN
                SELECT k.fingerprint, k.revision, k.published_at, k.late_ms
                  INTO v_key_fingerprint, v_key_revision, v_key_published_at, v_key_late_ms
                  FROM fence.publication_key k
                 WHERE k.resource = p_resource AND k.generation = p_generation
                   AND k.owner = p_owner AND k.operation_key = p_operation_key;
            END IF;
        END IF;

        -- Clock: after the last wait, and before the time row, whose renewals do not wait for us.
        v_clock := clock_timestamp();
        SELECT t.lease_until, CASE WHEN v_locked THEN fence.bound_idle_time(t.ttl_ms) END
          INTO v_term_until, v_ignored
          FROM fence.lease_term t
         WHERE t.resource = p_resource;

        -- Decide.
        IF NOT v_plain THEN
            IF v_key_fingerprint = v_fingerprint THEN
                outcome := 'replayed';
                reason := NULL;
            ELSE
                reason := coalesce(
                    reason,
                    fence.time_reason(p_policy, v_term_until, v_clock, p_source_as_of, p_max_source_age_ms),
                    CASE WHEN v_key_fingerprint <> v_fingerprint THEN 'key_conflict' END);
            END IF;
        END IF;
    END IF;

    IF outcome = 'replayed' THEN
        published_at := v_key_published_at;
        revision := v_key_revision;
        late_ms := v_key_late_ms;
    ELSIF reason IS NULL THEN
        -- Write.
        IF v_term_until < v_clock THEN
            late_ms := ceil(extract(epoch FROM v_clock - v_term_until) * 1000);
        END IF;
        WITH published AS (
            INSERT INTO fence.publication AS p (
                resource, revision, generation, owner, content_type, payload, source_as_of, published_at, late_ms)
            VALUES (
                p_resource, v_row_revision + 1, p_generation, p_owner, p_content_type, p_payload, p_source_as_of, v_clock, late_ms)
            ON CONFLICT (resource) DO UPDATE
               SET revision = EXCLUDED.revision,
                   generation = EXCLUDED.generation,
                   owner = EXCLUDED.owner,
                   content_type = EXCLUDED.content_type,
                   payload = EXCLUDED.payload,
                   source_as_of = EXCLUDED.source_as_of,
                   published_at = EXCLUDED.published_at,
                   late_ms = EXCLUDED.late_ms
        )
        UPDATE fence.lease l
           SET revision = v_row_revision + 1,
               accepted_generation = p_generation,
               released_at = CASE WHEN p_then_release THEN v_clock END
         WHERE l.resource = p_resource
        RETURNING 'accepted', v_clock, l.revision INTO outcome, published_at, revision;
        IF NOT v_plain THEN
            IF p_operation_key IS NOT NULL THEN
                INSERT INTO fence.publication_key (
                    resource, generation, owner, operation_key, fingerprint, revision, published_at, late_ms)
                VALUES (
                    p_resource, p_generation, p_owner, p_operation_key, v_fingerprint, v_row_revision + 1, v_clock, late_ms);
            END IF;
            IF p_then_release THEN
                UPDATE fence.lease_term t SET released_at = v_clock WHERE t.resource = p_resource;
            END IF;
        END IF;
        IF late_ms IS NOT NULL THEN
            INSERT INTO fence.late_publication (resource, revision, generation, owner, late_ms, published_at)
            VALUES (p_resource, v_row_revision + 1, p_generation, p_owner, late_ms, v_clock);
        END IF;
    ELSE
        outcome := 'rejected';
        IF v_term_until IS NULL THEN
            SELECT t.lease_until INTO v_term_until
              FROM fence.lease_term t
             WHERE t.resource = p_resource AND t.generation = v_row_generation;
        END IF;
        observed_generation := v_row_generation;
        observed_owner := v_row_owner;
        observed_lease_until := v_term_until;
        observed_at := v_clock;
        v_ignored := fence.record_rejection(
            p_resource, 'publish', reason, p_generation, p_owner,
            v_row_generation, v_row_owner, v_term_until, v_clock);
    END IF;
    RETURN NEXT;
END;
$$;
