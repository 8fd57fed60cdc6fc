// Drives a running llmsrv through frameworks of JavaScript, unmodified: each has a structured answer of the
// built-in model, where it can ask for one, and a round of a tool with the model `script`, of which script.py
// says what it does.
// The server's address comes in LLMSRV_URL; the argument is the framework.

import assert from 'node:assert/strict'
import { z } from 'zod'

const url = process.env.LLMSRV_URL
const v1 = `${url}/v1`
const question = 'Is an ant small or large?'
const schema = z.object({ ok: z.boolean(), kind: z.enum(['small', 'large']) })
const told = 'The tool said: "It rains in Paris."'
const result = ({ city }) => `It rains in ${city}.`
// Frameworks write a text either as it is or as JSON.
const same = (text) => assert.equal(text.replaceAll('"', ''), told.replaceAll('"', ''))

async function aiSdk(model) {
  const { generateText, streamText, Output, tool, stepCountIs } = await import('ai')
  const { output } = await generateText({ model: model('default'), prompt: question, output: Output.object({ schema }), maxOutputTokens: 500, maxRetries: 0 })
  schema.parse(output)
  const tools = { weather: tool({ description: 'The weather', inputSchema: z.object({ city: z.string() }), execute: async (input) => result(input) }) }
  const asked = { model: model('script'), prompt: question, tools, stopWhen: stepCountIs(3), maxOutputTokens: 500, maxRetries: 0 }
  same((await generateText(asked)).text)
  let text = ''
  for await (const piece of streamText(asked).textStream) text += piece
  same(text)
}

const frameworks = {
  async 'ai-sdk-openai'() {
    const { createOpenAI } = await import('@ai-sdk/openai')
    const openai = createOpenAI({ baseURL: v1, apiKey: 'unused' })
    await aiSdk((name) => openai.chat(name))
    await aiSdk((name) => openai.responses(name))
    // It refers to what the first answer was.
    const { generateText } = await import('ai')
    const asked = { model: openai.responses('default'), maxOutputTokens: 50, maxRetries: 0 }
    const messages = [{ role: 'user', content: question }]
    const { response } = await generateText({ ...asked, messages })
    messages.push(...response.messages, { role: 'user', content: 'Why?' })
    assert.ok((await generateText({ ...asked, messages })).text)
  },
  async 'ai-sdk-openai-compatible'() {
    const { createOpenAICompatible } = await import('@ai-sdk/openai-compatible')
    const compatible = createOpenAICompatible({ name: 'llmsrv', baseURL: v1, supportsStructuredOutputs: true })
    await aiSdk((name) => compatible(name))
  },
  async 'ai-sdk-anthropic'() {
    const { createAnthropic } = await import('@ai-sdk/anthropic')
    const anthropic = createAnthropic({ baseURL: v1, apiKey: 'unused' })
    await aiSdk((name) => anthropic(name === 'default' ? 'caller' : name))
  },
  async 'ai-sdk-ollama'() {
    const { createOllama } = await import('ai-sdk-ollama')
    const ollama = createOllama({ baseURL: url })
    await aiSdk((name) => ollama(name))
  },
  async genkit() {
    process.env.GENKIT_TELEMETRY_DISABLED = 'true'
    const { genkit } = await import('genkit')
    const { ollama } = await import('genkitx-ollama')
    const { z } = await import('genkit')
    // Its plugin for this API asks for a structure in words only, and takes what one read of a stream gives for
    // one object, which no server can promise.
    const models = [{ name: 'script', type: 'chat', supports: { tools: true } }]
    const ai = genkit({ plugins: [ollama({ models, serverAddress: url })] })
    const weather = ai.defineTool({ name: 'weather', description: 'The weather', inputSchema: z.object({ city: z.string() }), outputSchema: z.string() }, async (input) => result(input))
    const { text } = await ai.generate({ model: 'ollama/script', prompt: question, tools: [weather] })
    same(text)
  },
}

const [name] = process.argv.slice(2)
await frameworks[name]()
console.log('ok', name)
process.exit(0)
