// amqplib's promise API on an ordinary day. Arguments: the broker's URI, a name to use for queues, the case, and, for wrong
// use, what is done wrong. What the test process is to do it is told in lines on stdout; it answers each with a line on stdin.
// A failed assertion ends the process with a stack and a non-zero code.
'use strict';

const assert = require('node:assert/strict');
const readline = require('node:readline');
const amqp = require('amqplib');

const [uri, q, chosen, wrong] = process.argv.slice(2);
const DIRECT_REPLY = 'amq.rabbitmq.reply-to';

const answers = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();

// Ask the test process to do something, and wait until it has.
async function please(what) {
  process.stdout.write(`${what}\n`);
  return JSON.parse((await answers.next()).value);
}

// Collects messages; wait(count) is a promise for that many.
class Inbox {
  constructor() {
    this.got = [];
    this.waiting = [];
    this.take = (message) => {
      this.got.push(message);
      this.waiting.splice(0).forEach((resolve) => resolve());
    };
  }

  get texts() { return this.got.map((message) => message && message.content.toString()); }

  async wait(count) {
    while (this.got.length < count) await new Promise((resolve) => { this.waiting.push(resolve); });
    return this.got;
  }

  async until(text) {
    while (!this.texts.includes(text)) await this.wait(this.got.length + 1);
  }
}

// Not node:events' once: that one rejects when an error event comes first.
const once = (emitter, name) => new Promise((resolve) => { emitter.once(name, (...what) => resolve(what)); });
const plain = { durable: false };
const send = (channel, queue, ...bodies) => bodies.forEach((body) => channel.sendToQueue(queue, Buffer.from(body)));
// A round trip behind everything the broker has sent on this channel.
const settle = (channel) => channel.assertQueue('', { exclusive: true });

async function persistentConnect() {
  for (;;) {
    try {
      return await amqp.connect(uri);
    } catch (error) {
      await new Promise((resolve) => { setTimeout(resolve, 50); });
    }
  }
}

const mistakes = {
  async "declare another's exclusive queue"(channel, owner) {
    await owner.assertQueue(q, { exclusive: true });
    await channel.assertQueue(q, { exclusive: true });
  },
  async "consume from another's exclusive queue"(channel, owner) {
    await owner.assertQueue(q, { exclusive: true });
    await channel.consume(q, () => {});
  },
  async 'consume beside an exclusive consumer'(channel, owner) {
    await owner.assertQueue(q, plain);
    await owner.consume(q, () => {}, { exclusive: true });
    await channel.consume(q, () => {});
  },
  async 'look for a missing queue'(channel) { await channel.checkQueue(q); },
  async 'look for a missing exchange'(channel) { await channel.checkExchange(q); },
  async 'consume from a missing queue'(channel) { await channel.consume(q, () => {}); },
  async 'bind to a missing exchange'(channel, owner) {
    await owner.assertQueue(q, plain);
    await channel.bindQueue(q, `${q}.x`, 'k');
  },
  async 'publish to a missing exchange'(channel) {
    channel.publish(q, 'k', Buffer.from('lost'));
    await settle(channel);
  },
  async 'declare a queue otherwise'(channel, owner) {
    await owner.assertQueue(q, plain);
    await channel.assertQueue(q, { durable: true });
  },
  async 'declare a queue with other arguments'(channel, owner) {
    await owner.assertQueue(q, { ...plain, maxLength: 5 });
    await channel.assertQueue(q, { ...plain, maxLength: 6 });
  },
  async 'declare an exchange otherwise'(channel, owner) {
    await owner.assertExchange(q, 'direct');
    await channel.assertExchange(q, 'fanout');
  },
  async 'declare a reserved name'(channel) { await channel.assertQueue(`amq.${q}`, plain); },
  async 'delete a queue in use'(channel, owner) {
    await owner.assertQueue(q, plain);
    await owner.consume(q, () => {});
    await channel.deleteQueue(q, { ifUnused: true });
  },
  async 'delete a queue with messages'(channel, owner) {
    await owner.assertQueue(q, plain);
    send(owner, q, 'x');
    await settle(owner);
    await channel.deleteQueue(q, { ifEmpty: true });
  },
  async 'ack twice'(channel, owner) {
    await owner.assertQueue(q, plain);
    send(owner, q, 'x');
    await settle(owner);
    const message = await channel.get(q);
    channel.ack(message);
    channel.ack(message);
    await settle(channel);
  },
};

const outages = {
  async 'a lost connection is an event and a new one goes on'({ told, keepsMessages, forced }) {
    const first = await amqp.connect(uri);
    const channel = await first.createConfirmChannel();
    await channel.assertQueue(q, { durable: true });
    for (const body of ['0', '1', '2']) channel.sendToQueue(q, Buffer.from(body), { persistent: true });
    await channel.waitForConfirms();
    await channel.prefetch(1);
    const held = new Inbox();
    await channel.consume(q, held.take);
    await held.wait(1);

    const errors = [];
    first.on('error', (error) => errors.push(error));
    const closed = once(first, 'close');
    const channelClosed = once(channel, 'close');
    await please('begin');
    const [reason] = await closed;
    await channelClosed;
    if (told) {
      // A 320 is an orderly end to amqplib: close with the reason, and no error event.
      assert.equal(errors.length, 0);
      assert.equal(reason.code, forced[0]);
      assert.ok(reason.message.includes(forced[1]), reason.message);
    } else {
      assert.equal(errors.length, 1);
    }
    assert.throws(() => channel.sendToQueue(q, Buffer.from('too late')), /Channel closed/);
    if (!told) await assert.rejects(amqp.connect(uri));
    await please('end');

    const second = await persistentConnect();
    const again = await second.createConfirmChannel();
    await again.assertQueue(q, { durable: true });
    send(again, q, 'after');
    await again.waitForConfirms();
    const inbox = new Inbox();
    await again.consume(q, inbox.take, { noAck: true });
    await inbox.until('after');
    if (keepsMessages) {
      assert.deepEqual(inbox.texts, ['0', '1', '2', 'after']);
      assert.deepEqual(inbox.got.map((message) => message.fields.redelivered), [true, false, false, false]);
    }
    await second.close();
  },

  async 'a recovering connection sets itself up again'() {
    const inbox = new Inbox();
    const recovering = await amqp.connect(uri, {
      recovery: {
        initialDelay: 50,
        maxDelay: 50,
        async setup(connection) {
          const channel = await connection.createChannel();
          await channel.assertQueue(q, { durable: true });
          await channel.consume(q, inbox.take, { noAck: true });
        },
      },
    });
    recovering.on('error', () => {});
    const lost = once(recovering, 'disconnect');
    await please('begin');
    await lost;
    const found = once(recovering, 'connect');
    await please('end');
    await found;
    const channel = await recovering.createConfirmChannel();
    send(channel, q, 'after');
    await channel.waitForConfirms();
    await inbox.until('after');
    await recovering.close();
  },
};

const heartbeats = {
  async 'heartbeats keep an idle connection'() {
    const connection = await amqp.connect(`${uri}?heartbeat=2`);
    const channel = await connection.createChannel();
    await please('idle');
    await settle(channel);
    await connection.close();
  },

  async 'a silent connection is dropped'() {
    const connection = await amqp.connect(`${uri}?heartbeat=2`);
    const channel = await connection.createChannel();
    await channel.assertQueue(q, { exclusive: true });
    const failed = once(connection, 'error');
    const closed = once(connection, 'close');
    await please('fall silent');
    assert.match((await failed)[0].message, /ECONNRESET|Unexpected close/);
    await closed;
  },
};

const cases = {
  async 'a deleted queue is a null message to its consumer'(connection) {
    const channel = await connection.createChannel();
    await channel.assertQueue(q, plain);
    const inbox = new Inbox();
    await channel.consume(q, inbox.take);
    await please('delete');
    await inbox.wait(1);
    assert.deepEqual(inbox.got, [null]);
    await settle(channel);
  },

  async 'a returned message is a return event before its confirm'(connection) {
    for (const confirms of [false, true]) {
      const channel = await (confirms ? connection.createConfirmChannel() : connection.createChannel());
      const heard = [];
      const returned = once(channel, 'return');
      channel.on('return', () => heard.push('return'));
      channel.publish('', q, Buffer.from('back'), { mandatory: true, messageId: '1' }, () => heard.push('confirm'));
      const [message] = await returned;
      assert.deepEqual([message.fields.replyCode, message.fields.replyText], [312, 'NO_ROUTE']);
      assert.deepEqual([message.fields.routingKey, message.properties.messageId], [q, '1']);
      if (confirms) await channel.waitForConfirms();
      assert.deepEqual(heard, confirms ? ['return', 'confirm'] : ['return']);
    }
  },

  async 'a full queue that rejects is a nack'(connection) {
    const channel = await connection.createConfirmChannel();
    await channel.assertQueue(q, { ...plain, maxLength: 1, arguments: { 'x-overflow': 'reject-publish' } });
    send(channel, q, 'fits');
    await channel.waitForConfirms();
    send(channel, q, 'does not');
    await assert.rejects(channel.waitForConfirms(), /message nacked/);
    assert.equal((await channel.get(q, { noAck: true })).content.toString(), 'fits');
    send(channel, q, 'fits again');
    await channel.waitForConfirms();
  },

  async 'prefetch, requeue and redelivered'(connection) {
    const channel = await connection.createChannel();
    await channel.assertQueue(q, plain);
    send(channel, q, '0', '1', '2', '3');
    await channel.prefetch(2);
    const inbox = new Inbox();
    await channel.consume(q, inbox.take);
    await inbox.wait(2);
    await settle(channel);
    assert.deepEqual(inbox.texts, ['0', '1']);
    channel.nack(inbox.got[1], true, true);
    await inbox.wait(4);
    assert.deepEqual(inbox.texts.slice(2), ['0', '1']);
    assert.ok(inbox.got.slice(2).every((message) => message.fields.redelivered));
    channel.ackAll();
    await inbox.wait(6);
    assert.deepEqual(inbox.texts.slice(4), ['2', '3']);
    assert.ok(inbox.got.slice(4).every((message) => !message.fields.redelivered));
  },

  async 'get, check, purge and delete answer with counts'(connection) {
    const channel = await connection.createChannel();
    await channel.assertQueue(q, plain);
    send(channel, q, '0', '1', '2', '3', '4');
    const message = await channel.get(q);
    assert.equal(message.fields.messageCount, 4);
    assert.deepEqual(await channel.checkQueue(q), { queue: q, messageCount: 4, consumerCount: 0 });
    assert.equal((await channel.purgeQueue(q)).messageCount, 4);
    assert.equal(await channel.get(q), false);
    send(channel, q, 'x');
    assert.equal((await channel.deleteQueue(q)).messageCount, 1);
    assert.equal((await channel.deleteQueue(q)).messageCount, 0);
  },

  async 'a consumer of higher priority is served first'(connection) {
    const channel = await connection.createChannel();
    await channel.assertQueue(q, plain);
    await channel.prefetch(1);
    const [low, high] = [new Inbox(), new Inbox()];
    await channel.consume(q, low.take);
    await channel.consume(q, high.take, { priority: 10 });
    send(channel, q, '0', '1');
    await low.wait(1);
    assert.deepEqual([high.texts, low.texts], [['0'], ['1']]);
  },

  async 'an expired message is dead lettered with its history'(connection) {
    const channel = await connection.createChannel();
    await channel.assertExchange(`${q}.dlx`, 'fanout', plain);
    await channel.assertQueue(`${q}.dead`, plain);
    await channel.bindQueue(`${q}.dead`, `${q}.dlx`, '');
    await channel.assertQueue(q, { ...plain, deadLetterExchange: `${q}.dlx` });
    const inbox = new Inbox();
    await channel.consume(`${q}.dead`, inbox.take, { noAck: true });
    channel.sendToQueue(q, Buffer.from('late'), { expiration: 20 });
    const [message] = await inbox.wait(1);
    assert.equal(message.properties.expiration, undefined);
    const { 'x-death': [{ time, ...death }], ...headers } = message.properties.headers;
    assert.equal(time['!'], 'timestamp');
    assert.deepEqual(death, {
      count: 1, reason: 'expired', queue: q, exchange: '', 'routing-keys': [q], 'original-expiration': '20',
    });
    assert.deepEqual(headers, {
      'x-first-death-exchange': '', 'x-first-death-queue': q, 'x-first-death-reason': 'expired',
    });
  },

  async 'messages of higher priority overtake'(connection) {
    const channel = await connection.createChannel();
    await channel.assertQueue(q, { ...plain, maxPriority: 3 });
    for (const priority of [0, 1, 2, 3]) channel.sendToQueue(q, Buffer.from(String(priority)), { priority });
    const got = [];
    for (let number = 0; number < 4; number += 1) got.push((await channel.get(q, { noAck: true })).content.toString());
    assert.deepEqual(got, ['3', '2', '1', '0']);
  },

  async 'a request is answered over direct reply-to'(connection) {
    const [server, client] = [await connection.createChannel(), await connection.createChannel()];
    await server.assertQueue(q, plain);
    await server.consume(q, ({ content, properties: { replyTo, correlationId } }) => {
      assert.ok(replyTo.startsWith(`${DIRECT_REPLY}.`));
      server.sendToQueue(replyTo, Buffer.from(content.toString().toUpperCase()), { correlationId });
    }, { noAck: true });
    const replies = new Inbox();
    await client.consume(DIRECT_REPLY, replies.take, { noAck: true });
    for (const correlationId of ['1', '2']) {
      client.sendToQueue(q, Buffer.from('how'), { replyTo: DIRECT_REPLY, correlationId });
    }
    await replies.wait(2);
    assert.deepEqual(replies.texts, ['HOW', 'HOW']);
    assert.deepEqual(replies.got.map((message) => message.properties.correlationId), ['1', '2']);
  },

  async 'headers of every type come back as they were'(connection) {
    const channel = await connection.createChannel();
    await channel.assertQueue(q, plain);
    const headers = {
      text: 'größe', yes: true, small: -5, large: 2 ** 40, fraction: 2.5, nothing: null, list: [1, 'two', true, { three: 3 }],
      table: { inner: { deep: [1, 'two', null] } }, time: { '!': 'timestamp', value: 1700000000 },
      decimal: { '!': 'decimal', value: { digits: 314, places: 2 } }, bytes: Buffer.from([0, 255]),
    };
    channel.sendToQueue(q, Buffer.from('x'), { headers });
    const got = (await channel.get(q, { noAck: true })).properties.headers;
    assert.ok(got.bytes.equals(headers.bytes));
    delete got.bytes;
    delete headers.bytes;
    assert.deepEqual(got, headers);
  },

  async 'large messages and unicode names'(connection) {
    const channel = await connection.createConfirmChannel();
    const name = `${q}.größe.队列.🚰`;
    await channel.assertExchange(name, 'topic', plain);
    await channel.assertQueue(name, plain);
    await channel.bindQueue(name, name, 'schlüssel.*');
    for (const body of [Buffer.alloc(0), Buffer.alloc(4000000, 0xce)]) {
      channel.publish(name, 'schlüssel.钥匙', body, { mandatory: true });
      await channel.waitForConfirms();
      const message = await channel.get(name, { noAck: true });
      assert.ok(message.content.equals(body));
      assert.equal(message.fields.routingKey, 'schlüssel.钥匙');
    }
  },

  async 'many channels of one connection'(connection) {
    const work = async (number) => {
      const channel = await connection.createChannel();
      await channel.assertQueue(`${q}.${number}`, { exclusive: true });
      send(channel, `${q}.${number}`, String(number));
      return (await channel.get(`${q}.${number}`, { noAck: true })).content.toString();
    };
    const numbers = Array.from({ length: 100 }, (_, number) => number);
    assert.deepEqual(await Promise.all(numbers.map(work)), numbers.map(String));
  },

  async 'a wrong password is told and an unknown vhost refused'() {
    await assert.rejects(amqp.connect(uri.replace('guest:guest', 'guest:wrong')), /403 \(ACCESS-REFUSED\).*Login was refused/);
    // amqplib expects open-ok and does not look into the close that comes instead.
    await assert.rejects(amqp.connect(uri.replace('%2F', 'nowhere')), /Expected ConnectionOpenOk; got <ConnectionClose/);
  },
};

async function doWrong() {
  const [connection, other] = [await amqp.connect(uri), await amqp.connect(uri)];
  const { code, text } = await please('expected');
  const [channel, owner] = [await connection.createChannel(), await other.createChannel()];
  const events = [];
  const ended = once(channel, 'close');
  channel.on('error', (error) => events.push(error));
  let rejected;
  await mistakes[wrong](channel, owner).catch((error) => { rejected = error; });
  await ended;
  assert.equal(events.length, 1);
  for (const error of [rejected, events[0]]) assert.ok(error.message.includes(`"${text}"`), error.message);
  assert.equal(events[0].code, code);
  assert.throws(() => channel.sendToQueue(q, Buffer.from('x')), /Channel closed/);
  await settle(await connection.createChannel());
  await connection.close();
  await other.close();
}

async function main() {
  if (wrong !== undefined) return doWrong();
  if (heartbeats[chosen]) return heartbeats[chosen]();
  if (outages[chosen]) return outages[chosen](await please('facts'));
  const connection = await amqp.connect(uri);
  await cases[chosen](connection);
  return connection.close();
}

main().then(() => process.exit(0), (error) => {
  console.error(error);
  process.exit(1);
});
