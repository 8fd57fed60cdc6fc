// Drives a running llmsrv through the official JavaScript client of the native API, unmodified.
// The server's address comes in OLLAMA_HOST. Arguments name the parts to run; without any, all are.

import assert from 'node:assert/strict'
import { Ollama } from 'ollama'

const client = new Ollama({ host: process.env.OLLAMA_HOST })
const model = 'default'
const options = { temperature: 0 }

const parts = {
  async generate() {
    const prompt = 'Write a Python function that reverses a string.'
    const whole = await client.generate({ model, prompt, options })
    assert.match(whole.response, /def reverse_string/)
    assert.equal(whole.done_reason, 'stop')
    let text = ''
    for await (const piece of await client.generate({ model, prompt, options, stream: true })) text += piece.response
    assert.equal(text, whole.response)
  },
  async chat() {
    const messages = [{ role: 'user', content: 'Hello!' }]
    const first = await client.chat({ model, messages, options })
    assert.match(first.message.content, /built-in model/)
    messages.push(first.message, { role: 'user', content: 'Tell me a joke' })
    let last
    for await (const piece of await client.chat({ model, messages, options, stream: true })) last = piece
    assert.equal(last.done, true)
    assert.ok(last.eval_count > 0)
  },
  async abort() {
    // Seconds of text, whatever the model would say.
    const format = { type: 'array', items: { type: 'integer' }, minItems: 1000 }
    const stream = await client.generate({ model, prompt: 'Count for ever', stream: true, format, options: { num_predict: 30000 } })
    await assert.rejects(async () => {
      for await (const _ of stream) client.abort()
    }, { name: 'AbortError' })
  },
  async embeddings() {
    const { embeddings } = await client.embed({ model, input: ['What is Rust?', 'Tell me a joke'] })
    assert.equal(embeddings.length, 2)
    assert.equal(embeddings[0].length, embeddings[1].length)
    assert.notDeepEqual(embeddings[0], embeddings[1])
  },
  async library() {
    const names = (await client.list()).models.map((m) => m.name)
    assert.ok(names.includes('default:latest'), names.join())
    const shown = await client.show({ model })
    assert.ok(shown.details.family && shown.capabilities.includes('completion'))
    await client.copy({ source: model, destination: 'js-copy' })
    assert.equal((await client.delete({ model: 'js-copy' })).status, 'success')
    assert.ok(Array.isArray((await client.ps()).models))
    assert.match((await client.version()).version, /^\d+\.\d+\.\d+/)
  },
  async errors() {
    await assert.rejects(client.generate({ model: 'no-such-model', prompt: 'x' }), /not found/)
    await assert.rejects(client.chat({ model, messages: [], format: 'yaml' }), /invalid format/)
  },
}

const wanted = process.argv.slice(2)
for (const [name, part] of Object.entries(parts)) {
  if (wanted.length && !wanted.includes(name)) continue
  await part()
  console.log('ok', name)
}
