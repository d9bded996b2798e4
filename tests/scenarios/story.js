// The story of test_mqtt_js.py: node story.js URL PROTOCOL_LEVEL TOPIC. Prints one JSON object of what was seen.
"use strict";
const mqtt = require("mqtt");

const [url, level, topic] = process.argv.slice(2);
const protocolVersion = Number(level);
const unique = (name) => `${name}-${Math.random().toString(36).slice(2)}`;

function connect(device, clientId, more = {}) {
  const properties = protocolVersion === 5 ? { sessionExpiryInterval: 3600 } : undefined;
  return mqtt.connectAsync(url, {
    protocolVersion, clientId, clean: false, properties, reconnectPeriod: 50,
    username: `home/${device}`, password: "secret", ...more,
  });
}

function collect(client) {
  const seen = [];
  const waiting = [];
  client.on("message", (name, payload, packet) => {
    seen.push({ topic: name, payload: payload.toString(), qos: packet.qos, retain: packet.retain, properties: packet.properties });
    waiting.filter((each) => each.count <= seen.length).forEach((each) => each.done());
  });
  seen.reached = (count) => new Promise((done) => (seen.length >= count ? done() : waiting.push({ count, done })));
  return seen;
}

async function main() {
  const name = unique("console");
  const result = {};

  const first = await connect("console", name);
  result.granted = (await first.subscribeAsync(`${topic}/#`, { qos: 2 })).map((each) => each.qos);
  await first.endAsync();

  const sensor = await connect("sensor", unique("sensor"));
  for (let number = 0; number < 30; number++) {
    await sensor.publishAsync(`${topic}/reading`, String(number), { qos: 2 });
  }

  // back from offline: listeners first, then the connection, so that nothing slips by
  const second = mqtt.connect(url, {
    protocolVersion, clientId: name, clean: false, reconnectPeriod: 50,
    properties: protocolVersion === 5 ? { sessionExpiryInterval: 3600 } : undefined,
    username: "home/console", password: "secret", manualConnect: true,
  });
  const seen = collect(second);
  second.on("connect", (packet) => { result.sessionPresent = packet.sessionPresent; });
  second.connect();
  await seen.reached(30);
  result.missed = seen.map((each) => each.payload);

  // a network failure in the middle, healed by the library itself
  const reconnected = new Promise((done) => second.once("connect", done));
  second.stream.destroy();
  for (let number = 30; number < 60; number++) {
    await sensor.publishAsync(`${topic}/reading`, String(number), { qos: 2 });
  }
  await reconnected;
  await seen.reached(60);
  result.all = seen.map((each) => each.payload);

  // a device with a Will vanishes
  const light = await connect("light", unique("light"), {
    reconnectPeriod: 0, will: { topic: `${topic}/light`, payload: "gone", qos: 1, retain: true },
  });
  light.stream.destroy();
  await seen.reached(61);
  result.will = seen[60].payload;

  // what is retained is there for a newcomer
  const late = await connect("console", unique("late"));
  const found = collect(late);
  await late.subscribeAsync(`${topic}/light`, { qos: 1 });
  await found.reached(1);
  result.retained = [found[0].payload, found[0].retain];

  if (protocolVersion === 5) {
    await sensor.publishAsync(`${topic}/p`, "x", {
      qos: 1, properties: { contentType: "text/plain", responseTopic: "reply", correlationData: Buffer.from("42"), userProperties: { b: ["1", "2"] } },
    });
    await seen.reached(62);
    const { contentType, responseTopic, correlationData, userProperties } = seen[61].properties;
    result.properties = { contentType, responseTopic, correlationData: correlationData.toString(), userProperties };
  }

  result.surplus = seen.length - (protocolVersion === 5 ? 62 : 61);
  await Promise.all([second, sensor, late].map((each) => each.endAsync()));
  process.stdout.write(JSON.stringify(result));
}

main().then(() => process.exit(0), (error) => { process.stderr.write(`${error.stack}\n`); process.exit(1); });
