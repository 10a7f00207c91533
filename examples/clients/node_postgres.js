// A stalled worker is refused: Node with pg.
//
//   node node_postgres.js postgres://user:password@host/database report:42
'use strict';

const { randomUUID } = require('node:crypto');
const { Client } = require('pg');

// call calls a routine of the fence. Its answer is always one row.
//
// pg hands bigint over as a string. Leave it one: a generation may exceed 2^53 after a restore, and Number
// would quietly round it to another worker's.
async function call(client, routine, ...values) {
  const places = values.map((_, i) => `$${i + 1}`).join(', ');
  const { rows } = await client.query(`SELECT * FROM fence.${routine}(${places})`, values);
  return rows[0];
}

// publish passes the operation_key by its name, since it stands behind parameters that have defaults.
async function publish(client, resource, owner, generation, payload, operationKey) {
  const { rows } = await client.query(
    'SELECT * FROM fence.publish($1, $2, $3, $4, p_operation_key => $5)',
    [resource, owner, generation, payload, operationKey]);
  return rows[0];
}

// writeReport writes to a table of one's own, fenced: check first, in the transaction of the write. With a
// pool, all of it must go through one client: pool.query may take another connection each time.
async function writeReport(client, resource, owner, generation) {
  await client.query('BEGIN');
  try {
    const checked = await call(client, 'check', resource, owner, generation);
    if (checked.outcome === 'ok') {
      await client.query('INSERT INTO report VALUES ($1, $2)', [resource, `by ${owner}`]);
    }
    await client.query('COMMIT');
    return checked;
  } catch (error) {
    await client.query('ROLLBACK');
    throw error;
  }
}

// refusal words a refusal: why, and what the row looked like when it was decided.
function refusal(answer) {
  return `${answer.outcome}, ${answer.reason}: ${answer.observed_owner} has generation ${answer.observed_generation}`;
}

async function main(connectionString, resource) {
  const slow = new Client({ connectionString });
  const fast = new Client({ connectionString });
  await slow.connect();
  await fast.connect();

  // The slow worker takes the lease for 1 ms. It will have stalled for longer than that.
  const requestId = randomUUID();
  const lease = await call(slow, 'acquire', resource, 'slow', 1, requestId);
  console.log(`slow acquire: ${lease.outcome}, generation ${lease.generation}`);

  // Had the reply been lost, the same call with the same request_id would bring the same answer.
  const again = await call(slow, 'acquire', resource, 'slow', 1, requestId);
  console.log(`slow acquire again: ${again.outcome}, generation ${again.generation}`);

  // The fast worker asks until the lease has run out, and takes over with the next generation.
  let taken;
  do {
    taken = await call(fast, 'acquire', resource, 'fast', 60_000);
  } while (taken.outcome === 'held');
  console.log(`fast acquire: ${taken.outcome}, generation ${taken.generation}`);

  // It publishes, and repeats the call as after a lost reply: one operation_key for one result.
  for (const attempt of ['', ' again']) {
    const published = await publish(fast, resource, 'fast', taken.generation, '{"rows": 12}', 'build-1');
    console.log(`fast publish${attempt}: ${published.outcome}, revision ${published.revision}`);
  }

  // The slow worker wakes up. Its own clock tells it nothing; its generation tells the database.
  const rejected = await publish(slow, resource, 'slow', lease.generation, '{"rows": 11}', 'build-1');
  console.log(`slow publish: ${refusal(rejected)}`);

  console.log(`slow check: ${refusal(await writeReport(slow, resource, 'slow', lease.generation))}`);
  console.log(`fast check: ${(await writeReport(fast, resource, 'fast', taken.generation)).outcome}`);

  const released = await call(fast, 'release', resource, 'fast', taken.generation);
  console.log(`fast release: ${released.outcome}`);

  await slow.end();
  await fast.end();
}

main(...process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
