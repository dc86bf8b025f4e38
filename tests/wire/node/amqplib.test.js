// amqplib's promise API against the broker whose URI is the first argument. One named case per run; any failed
// assertion ends the process with a stack and a non-zero code.
'use strict';

const assert = require('node:assert/strict');
const { once } = require('node:events');
const amqp = require('amqplib');

const uri = process.argv[2];
const bodies = (count) => Array.from({ length: count }, (_, number) => String(number));

// A promise for this many messages of a consumer, as {fields, properties, content}.
function collect(channel, queue, count, options, onMessage) {
  return new Promise((resolve) => {
    const got = [];
    channel.consume(queue, (message) => {
      got.push(message);
      if (onMessage) onMessage(message);
      if (got.length === count) resolve(got);
    }, options);
  });
}

const texts = (messages) => messages.map((message) => message.content.toString());

const cases = {
  async 'every type of exchange'(connection) {
    const channel = await connection.createChannel();
    for (const [kind, pattern, key, args] of [
      ['direct', 'k', 'k', {}],
      ['fanout', '', 'any', {}],
      ['topic', 'a.#', 'a.b.c', {}],
      ['headers', '', '', { 'x-match': 'all', colour: 'red' }],
    ]) {
      await channel.assertExchange(`x-${kind}`, kind, { durable: false });
      await channel.checkExchange(`x-${kind}`);
      const { queue } = await channel.assertQueue('', { exclusive: true });
      assert.match(queue, /^amq\.gen-/);
      await channel.bindQueue(queue, `x-${kind}`, pattern, args);
      channel.publish(`x-${kind}`, key, Buffer.from(kind), { headers: { colour: 'red' } });
      const [message] = await collect(channel, queue, 1, { noAck: true });
      assert.equal(message.content.toString(), kind);
      assert.equal(message.fields.exchange, `x-${kind}`);
      await channel.unbindQueue(queue, `x-${kind}`, pattern, args);
      await channel.deleteExchange(`x-${kind}`);
    }
  },

  async 'confirms'(connection) {
    const channel = await connection.createConfirmChannel();
    await channel.assertQueue('confirmed', { durable: false });
    let confirmed = 0;
    for (const body of bodies(1000)) {
      channel.sendToQueue('confirmed', Buffer.from(body), {}, (error) => {
        assert.equal(error, null);
        confirmed += 1;
      });
    }
    await channel.waitForConfirms();
    assert.equal(confirmed, 1000);
    assert.equal((await channel.checkQueue('confirmed')).messageCount, 1000);
    assert.equal((await channel.purgeQueue('confirmed')).messageCount, 1000);
  },

  async 'consume, ack, nack and reject'(connection) {
    const channel = await connection.createChannel();
    await channel.assertQueue('acks', { durable: false });
    for (const body of bodies(6)) channel.sendToQueue('acks', Buffer.from(body));
    const taken = [];
    for (let number = 0; number < 6; number += 1) taken.push(await channel.get('acks'));
    assert.deepEqual(texts(taken), bodies(6));
    channel.ack(taken[1], true);
    channel.nack(taken[3], true, true);
    channel.reject(taken[4], false);
    channel.reject(taken[5], true);
    const again = await collect(channel, 'acks', 3, {}, (message) => channel.ack(message));
    assert.deepEqual(texts(again), ['2', '3', '5']);
    assert.ok(again.every((message) => message.fields.redelivered));
    assert.equal(await channel.get('acks'), false);
  },

  async 'prefetch'(connection) {
    const channel = await connection.createChannel();
    await channel.assertQueue('prefetched', { durable: false });
    await channel.prefetch(3);
    for (const body of bodies(10)) channel.sendToQueue('prefetched', Buffer.from(body));
    const got = [];
    let more = () => {};
    await channel.consume('prefetched', (message) => { got.push(message); more(); });
    while (got.length < 3) await new Promise((resolve) => { more = resolve; });
    assert.equal((await channel.checkQueue('prefetched')).messageCount, 7);
    assert.equal(got.length, 3);
    channel.ack(got[0]);
    while (got.length < 4) await new Promise((resolve) => { more = resolve; });
    assert.deepEqual(texts(got), ['0', '1', '2', '3']);
    channel.ackAll();
    while (got.length < 7) await new Promise((resolve) => { more = resolve; });
    await channel.recover();
    while (got.length < 10) await new Promise((resolve) => { more = resolve; });
    assert.deepEqual(texts(got.slice(7)), ['4', '5', '6']);
  },

  async 'cancel'(connection) {
    const channel = await connection.createChannel();
    await channel.assertQueue('cancelled', { durable: false });
    const { consumerTag } = await channel.consume('cancelled', () => assert.fail('nothing may come'));
    await channel.cancel(consumerTag);
    channel.sendToQueue('cancelled', Buffer.from('x'));
    assert.equal((await channel.checkQueue('cancelled')).messageCount, 1);
    assert.equal((await channel.deleteQueue('cancelled')).messageCount, 1);
  },

  async 'a deleted queue tells its consumers'(connection) {
    const channel = await connection.createChannel();
    await channel.assertQueue('gone', { durable: false });
    let tell;
    const told = new Promise((resolve) => { tell = resolve; });
    await channel.consume('gone', tell);
    await channel.deleteQueue('gone');
    assert.equal(await told, null);
  },

  async 'return'(connection) {
    const channel = await connection.createConfirmChannel();
    const returned = once(channel, 'return');
    channel.publish('', 'nowhere', Buffer.from('lost'), { mandatory: true, messageId: '7' });
    const [message] = await returned;
    assert.equal(message.fields.replyCode, 312);
    assert.equal(message.fields.replyText, 'NO_ROUTE');
    assert.equal(message.properties.messageId, '7');
    assert.equal(message.content.toString(), 'lost');
    await channel.waitForConfirms();
  },

  async 'bodies of any size'(connection) {
    const channel = await connection.createConfirmChannel();
    await channel.assertQueue('größe', { durable: false });
    for (const size of [0, 1, 131064, 131065, 10000000]) {
      const body = Buffer.alloc(size, 'abc');
      channel.sendToQueue('größe', body);
      await channel.waitForConfirms();
      const message = await channel.get('größe', { noAck: true });
      assert.ok(message.content.equals(body), `body of ${size}`);
    }
  },

  async 'headers of every type'(connection) {
    const channel = await connection.createChannel();
    const { queue } = await channel.assertQueue('', { exclusive: true });
    const headers = {
      string: 'größe',
      yes: true,
      small: 5,
      negative: -70000,
      large: 2 ** 40,
      fraction: 2.5,
      nothing: null,
      bytes: Buffer.from([0, 255]),
      list: [1, 'two', true, null],
      table: { inner: { deep: [1, { two: 2 }] } },
      time: { '!': 'timestamp', value: 1700000000 },
      decimal: { '!': 'decimal', value: { digits: 314, places: 2 } },
      float: { '!': 'float', value: 0.5 },
      byte: { '!': 'int8', value: -3 },
      short: { '!': 'int16', value: -300 },
      long: { '!': 'int64', value: -3 },
    };
    channel.sendToQueue(queue, Buffer.from('x'), {
      headers, contentType: 'text/plain', correlationId: 'c', replyTo: 'r', priority: 3, expiration: 60000,
      messageId: 'm', timestamp: 1700000000, type: 't', userId: 'guest', appId: 'a', persistent: true,
    });
    const message = await channel.get(queue, { noAck: true });
    const got = message.properties.headers;
    for (const name of ['string', 'yes', 'small', 'negative', 'large', 'fraction', 'nothing', 'list', 'table']) {
      assert.deepEqual(got[name], headers[name], name);
    }
    assert.ok(got.bytes.equals(headers.bytes));
    assert.deepEqual(got.time, headers.time);
    assert.deepEqual(got.decimal, headers.decimal);
    assert.deepEqual([got.float, got.byte, got.short, got.long], [0.5, -3, -300, -3]);
    assert.equal(message.properties.correlationId, 'c');
    assert.equal(message.properties.expiration, '60000');
    assert.equal(message.properties.deliveryMode, 2);
  },

  async 'a channel error leaves the connection open'(connection) {
    const bad = await connection.createChannel();
    const good = await connection.createChannel();
    const failed = once(bad, 'error');
    await assert.rejects(bad.checkQueue('nowhere'), /404 \(NOT-FOUND\) with message "NOT_FOUND - no queue 'nowhere' in vhost '\/'"/);
    const [error] = await failed;
    assert.equal(error.code, 404);
    await good.assertQueue('', { exclusive: true });
    const third = await connection.createChannel();
    third.on('error', () => {});
    await third.assertQueue('plain', { durable: false });
    await assert.rejects(third.assertQueue('plain', { durable: true }), /406 \(PRECONDITION-FAILED\).*inequivalent arg 'durable'/);
  },

  async 'a connection error closes the connection'(connection) {
    const channel = await connection.createChannel();
    channel.on('error', () => {});
    const failed = once(connection, 'error');
    const ended = new Promise((resolve) => { connection.on('close', resolve); });
    channel.assertExchange('x', 'bogus').catch(() => {});
    const [error] = await failed;
    assert.equal(error.code, 503);
    await ended;
    return 'closed';
  },

  async 'a wrong password is refused'() {
    await assert.rejects(amqp.connect(uri.replace('guest:guest', 'guest:wrong')), /403 \(ACCESS-REFUSED\)/);
  },

  async 'a request and its reply'(connection) {
    const server = await connection.createChannel();
    await server.assertQueue('rpc', { durable: false });
    await server.consume('rpc', (message) => {
      const reply = Buffer.from(message.content.toString().toUpperCase());
      server.sendToQueue(message.properties.replyTo, reply, { correlationId: message.properties.correlationId });
      server.ack(message);
    });
    const client = await connection.createChannel();
    const { queue } = await client.assertQueue('', { exclusive: true });
    const replies = collect(client, queue, 20, { noAck: true });
    for (const body of bodies(20)) {
      client.sendToQueue('rpc', Buffer.from(`request ${body}`), { replyTo: queue, correlationId: body });
    }
    const got = await replies;
    assert.deepEqual(got.map((message) => message.properties.correlationId), bodies(20));
    assert.equal(got[3].content.toString(), 'REQUEST 3');
  },

  async 'heartbeats'() {
    const connection = await amqp.connect(`${uri}?heartbeat=1`);
    // Three intervals without a word: longer than either side waits for a silent peer.
    const lost = once(connection, 'close').then(() => 'lost');
    const waited = new Promise((resolve) => { setTimeout(resolve, 3000, 'waited'); });
    assert.equal(await Promise.race([lost, waited]), 'waited');
    await (await connection.createChannel()).assertQueue('', { exclusive: true });
    await connection.close();
  },
};

async function main() {
  const connection = await amqp.connect(uri);
  if (await cases[process.argv[3]](connection) !== 'closed') await connection.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
