-- Counts a refusal with its cause, and refuses to name a cause that the caller's snapshot cannot prove.
--
-- Internal: called by the other routines, executable by no role.
--
-- Parameters  p_resource, p_operation, p_reason  what was refused and why
--             p_generation, p_owner              the caller's token
--             p_observed_*                       the row as the decision saw it
-- Returns     true
-- Locks       rejection: a row of the same token that nobody else holds; it never waits
-- Errors      40001 the snapshot is older than the token: retry the transaction
CREATE OR REPLACE FUNCTION fence.record_rejection(
    p_resource text, p_operation text, p_reason text, p_generation bigint, p_owner text,
    p_observed_generation bigint, p_observed_owner text, p_observed_lease_until timestamptz, p_observed_at timestamptz)
RETURNS boolean
LANGUAGE plpgsql
VOLATILE
AS $$
DECLARE
    v_rejection_id uuid;
BEGIN
    -- Above READ COMMITTED the token may have been given out after the snapshot: neither "no such row" nor
    -- "never issued" is proven. The other causes are final once seen.
    IF p_reason IN ('not_found', 'ahead_of_issuer')
       AND current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'the snapshot is older than the token: retry the transaction'
            USING ERRCODE = '40001';
    END IF;

    -- A locked row belongs to a refusal whose transaction is still open: a row of our own instead of a wait.
    SELECT r.rejection_id INTO v_rejection_id
      FROM fence.rejection r
     WHERE r.resource = p_resource
       AND r.generation = p_generation AND r.owner = p_owner
       AND r.operation = p_operation AND r.reason = p_reason
       AND r.first_at > p_observed_at - interval '1 minute'
     ORDER BY r.first_at DESC
     LIMIT 1
       FOR NO KEY UPDATE SKIP LOCKED;

    IF v_rejection_id IS NULL THEN
        INSERT INTO fence.rejection (
            resource, rejection_id, operation, reason, generation, owner, first_at, last_at,
            observed_generation, observed_owner, observed_lease_until, observed_at)
        VALUES (
            p_resource, gen_random_uuid(), p_operation, p_reason, p_generation, p_owner, p_observed_at, p_observed_at,
            p_observed_generation, p_observed_owner, p_observed_lease_until, p_observed_at);
    ELSE
        UPDATE fence.rejection r
           SET occurrences = r.occurrences + 1,
               last_at = p_observed_at,
               observed_generation = p_observed_generation,
               observed_owner = p_observed_owner,
               observed_lease_until = p_observed_lease_until,
               observed_at = p_observed_at
         WHERE r.resource = p_resource AND r.rejection_id = v_rejection_id;
    END IF;

    RETURN true;
END;
$$;
