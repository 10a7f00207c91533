// A stalled worker is refused: Node with tedious.
//
//   node node_sqlserver.js sqlserver://user:password@host:1433?database=app report:42
'use strict';

const { randomUUID } = require('node:crypto');
const { promisify } = require('node:util');
const { Connection, Request, TYPES } = require('tedious');

async function connect(dsn) {
  const url = new URL(dsn);
  const connection = new Connection({
    server: url.hostname,
    authentication: {
      type: 'default',
      options: { userName: decodeURIComponent(url.username), password: decodeURIComponent(url.password) },
    },
    options: {
      port: Number(url.port || 1433),
      database: url.searchParams.get('database'),
      encrypt: url.searchParams.get('encrypt') !== 'disable',
      useColumnNames: true,
    },
  });
  await promisify(connection.connect).call(connection);
  return connection;
}

// The types of the parameters, as the procedures declare them. A name sent as VarChar would lose the letters
// outside of the server's code page, and a bigint as Int its upper half.
const types = {
  resource: TYPES.NVarChar,
  owner: TYPES.NVarChar,
  generation: TYPES.BigInt,
  ttl_ms: TYPES.BigInt,
  request_id: TYPES.UniqueIdentifier,
  payload: TYPES.NVarChar, // becomes nvarchar(max) by itself where the text is long
  operation_key: TYPES.NVarChar,
};

// call calls a routine of the fence with arguments by their names. Its answer is always one row.
//
// tedious hands bigint over as a string. Leave it one: a generation may exceed 2^53 after a restore, and Number
// would quietly round it to another worker's.
function call(connection, routine, values) {
  return new Promise((resolve, reject) => {
    let answer;
    const request = new Request(`fence.[${routine}]`, (error) => (error ? reject(error) : resolve(answer)));
    request.on('row', (row) => {
      answer = Object.fromEntries(Object.entries(row).map(([name, column]) => [name, column.value]));
    });
    for (const [name, value] of Object.entries(values)) {
      request.addParameter(name, types[name], value);
    }
    connection.callProcedure(request);
  });
}

function insertReport(connection, resource, body) {
  return new Promise((resolve, reject) => {
    const request = new Request('INSERT report VALUES (@name, @body)', (error) => (error ? reject(error) : resolve()));
    request.addParameter('name', TYPES.NVarChar, resource);
    request.addParameter('body', TYPES.NVarChar, body);
    connection.execSql(request);
  });
}

// writeReport writes to a table of one's own, fenced: check first, in the transaction of the write.
async function writeReport(connection, resource, owner, generation) {
  await promisify(connection.beginTransaction).call(connection);
  try {
    const checked = await call(connection, 'check', { resource, owner, generation });
    if (checked.outcome === 'ok') {
      await insertReport(connection, resource, `by ${owner}`);
    }
    await promisify(connection.commitTransaction).call(connection);
    return checked;
  } catch (error) {
    // The server has rolled back already where the error was one of its own: the first error is the one to tell.
    await promisify(connection.rollbackTransaction).call(connection).catch(() => {});
    throw error;
  }
}

// refusal words a refusal: why, and what the row looked like when it was decided.
function refusal(answer) {
  return `${answer.outcome}, ${answer.reason}: ${answer.observed_owner} has generation ${answer.observed_generation}`;
}

async function main(dsn, resource) {
  const slow = await connect(dsn);
  const fast = await connect(dsn);

  // The slow worker takes the lease for 1 ms. It will have stalled for longer than that.
  const request = { resource, owner: 'slow', ttl_ms: 1, request_id: randomUUID() };
  const lease = await call(slow, 'acquire', request);
  console.log(`slow acquire: ${lease.outcome}, generation ${lease.generation}`);

  // Had the reply been lost, the same call with the same request_id would bring the same answer.
  const again = await call(slow, 'acquire', request);
  console.log(`slow acquire again: ${again.outcome}, generation ${again.generation}`);

  // The fast worker asks until the lease has run out, and takes over with the next generation.
  let taken;
  do {
    taken = await call(fast, 'acquire', { resource, owner: 'fast', ttl_ms: 60_000 });
  } while (taken.outcome === 'held');
  console.log(`fast acquire: ${taken.outcome}, generation ${taken.generation}`);

  // It publishes, and repeats the call as after a lost reply: one operation_key for one result.
  const result = { resource, owner: 'fast', generation: taken.generation, payload: '{"rows": 12}', operation_key: 'build-1' };
  for (const attempt of ['', ' again']) {
    const published = await call(fast, 'publish', result);
    console.log(`fast publish${attempt}: ${published.outcome}, revision ${published.revision}`);
  }

  // The slow worker wakes up. Its own clock tells it nothing; its generation tells the database.
  const late = { resource, owner: 'slow', generation: lease.generation, payload: '{"rows": 11}', operation_key: 'build-1' };
  console.log(`slow publish: ${refusal(await call(slow, 'publish', late))}`);

  console.log(`slow check: ${refusal(await writeReport(slow, resource, 'slow', lease.generation))}`);
  console.log(`fast check: ${(await writeReport(fast, resource, 'fast', taken.generation)).outcome}`);

  const released = await call(fast, 'release', { resource, owner: 'fast', generation: taken.generation });
  console.log(`fast release: ${released.outcome}`);

  slow.close();
  fast.close();
}

main(...process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
