// A conversation of MQTT.js clients with a gateway. Prints one JSON object: what each part of it saw.
// node conversation.cjs URL VERSION, with NODE_PATH set to where the package `mqtt` is installed.
"use strict";

const mqtt = require("mqtt");

const [url, spoken] = process.argv.slice(2);
const protocolVersion = Number(spoken);
const isV5 = protocolVersion === 5;
const clients = [];
let markers = 0;

/** A connected client that keeps what it receives. */
async function come(clientId, more = {}) {
  const client = await mqtt.connectAsync(url, { clientId, protocolVersion, reconnectPeriod: 0, ...more });
  client.received = [];
  client.on("message", (topic, payload, packet) => {
    client.received.push({ topic, payload: payload.toString("latin1"), qos: packet.qos, retain: packet.retain,
      properties: packet.properties });
    client.emit("kept");
  });
  clients.push(client);
  return client;
}

/** Until `wanted(client.received)`. */
function until(client, wanted) {
  return new Promise((resolve) => {
    const look = () => wanted(client.received) && (client.off("kept", look), resolve());
    client.on("kept", look);
    look();
  });
}

/** Everything received after all that `writer` has published so far. */
async function allFrom(writer, reader) {
  const marker = `end/${++markers}`;
  await reader.subscribeAsync(marker, { qos: 2 });
  await writer.publishAsync(marker, "", { qos: 2 });
  await until(reader, (received) => received.some((message) => message.topic === marker));
  return reader.received.splice(0).filter((message) => message.topic !== marker);
}

const parts = {
  async everyQos() {
    const reader = await come("reader"), writer = await come("writer");
    const granted = await reader.subscribeAsync("qos/#", { qos: 2 });
    for (let number = 0; number < 30; number++) {
      await writer.publishAsync("qos/a", String(number), { qos: number % 3 });
    }
    return { granted: granted.map((one) => one.qos), received: await allFrom(writer, reader) };
  },

  async filters() {
    const reader = await come("reader"), writer = await come("writer");
    await reader.subscribeAsync("$filter/temp%3E30/sensors/#", { qos: 1 });
    if (isV5) {
      const properties = { userProperties: { $where: "site IN ('a', 'b')" } };
      await reader.subscribeAsync("sites/#", { qos: 1, properties });
    }
    for (const payload of ['{"temp":29}', '{"temp":31}', "not json"]) {
      await writer.publishAsync("sensors/a", payload, { qos: 1 });
    }
    for (const payload of ['{"site":"b"}', '{"site":"c"}']) {
      await writer.publishAsync("sites/a", payload, { qos: 1 });
    }
    const received = await allFrom(writer, reader);
    const refused = await reader.subscribeAsync("$filter/temp%3E%3E30/sensors/#").then(
      () => "granted", (error) => error.message);
    return { received, refused };
  },

  async retainedAndWill() {
    const writer = await come("writer"), reader = await come("reader");
    await writer.publishAsync("kept/a", "1", { qos: 1, retain: true });
    await reader.subscribeAsync(["kept/#", "wills/#"], { qos: 1 });
    const kept = await allFrom(writer, reader);
    await writer.publishAsync("kept/a", "", { qos: 1, retain: true });
    const will = { topic: "wills/a", payload: Buffer.from("gone"), qos: 1, retain: false };
    const dying = await come("dying", { will });
    dying.on("error", () => {});
    dying.stream.destroy();
    await until(reader, (received) => received.some((message) => message.topic === "wills/a"));
    return { kept, told: await allFrom(writer, reader) };
  },

  async aKeptSession() {
    const lasting = { clean: false, properties: isV5 ? { sessionExpiryInterval: 60 } : undefined };
    const keeper = await come("keeper", lasting), writer = await come("writer");
    await keeper.subscribeAsync("resume/#", { qos: 1 });
    await keeper.endAsync();
    for (let number = 0; number < 10; number++) {
      await writer.publishAsync("resume/a", String(number), { qos: 1 });
    }
    let present;
    const again = mqtt.connect(url, { clientId: "keeper", protocolVersion, reconnectPeriod: 0, ...lasting });
    clients.push(again);
    again.received = [];
    again.on("connect", (connack) => { present = connack.sessionPresent; });
    again.on("message", (topic, payload) => { again.received.push(payload.toString()); again.emit("kept"); });
    await until(again, (received) => received.length === 10);
    return { present, received: again.received };
  },

  async aLargePayload() {
    const reader = await come("reader"), writer = await come("writer");
    await reader.subscribeAsync("large", { qos: 2 });
    const payload = Buffer.alloc(1 << 20, "0123456789abcdef");
    await writer.publishAsync("large", payload, { qos: 2 });
    const [message] = await allFrom(writer, reader);
    return { bytes: message.payload.length, same: message.payload === payload.toString("latin1") };
  },

  async aRequest() {
    const service = await come("service"), asker = await come("asker");
    await service.subscribeAsync("request", { qos: 1 });
    await asker.subscribeAsync("answer", { qos: 1 });
    const asked = { responseTopic: "answer", correlationData: Buffer.from("7"), userProperties: { site: "north" } };
    await asker.publishAsync("request", "21", { qos: 1, properties: isV5 ? asked : undefined });
    await until(service, (received) => received.length === 1);
    const { properties } = service.received[0];
    const answered = isV5 ? { correlationData: properties.correlationData } : undefined;
    await service.publishAsync(isV5 ? properties.responseTopic : "answer", "42", { qos: 1, properties: answered });
    await until(asker, (received) => received.length === 1);
    const [answer] = asker.received;
    return { answer: answer.payload, correlation: answer.properties?.correlationData?.toString(),
      user: properties?.userProperties?.site };
  },
};

(async () => {
  const seen = {};
  for (const [name, part] of Object.entries(parts)) {
    seen[name] = await part();
    await Promise.all(clients.splice(0).map((client) => client.endAsync(true).catch(() => {})));
  }
  console.log(JSON.stringify(seen));
})().catch((error) => { console.error(error); process.exit(1); });
