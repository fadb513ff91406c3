/* clang-format off */
/* The host protocol: control ↔ the Pi host (Node), over the stream socket the parent made
   (PARENT_START_HOST; descriptor 3 in the host). Lines end with LF only. A message is one envelope line, a JSON
   object of at most HOST_ENVELOPE_MAX bytes; if it has "lines": n, n raw lines follow and belong to it.
   Raw lines are relayed without re-encoding (log lines, tool input, results).

   control → host                                             lines that follow
     {op:"open", id, session, cwd, token, model, thinkingLevel, systemPrompt|null, tools:[name…], lines,
             workdirLines?}                                    the log's header and entries Pi needs, oldest first; the
                                                               last workdirLines are not of the log: what rg found
                                                               in the working directory (session/workdir.h)
        model: {provider, id, api?, baseUrl?, custom, contextWindow?, maxTokens?, input?, cost?}
     {op:"prompt", id, session, note|null, lines:1}             content blocks (array); note = hidden text before
     {op:"steer", id, session, lines:1}                         content blocks: between tool calls of the run
     {op:"resume", id, session, note|null, lines}               toolResult messages for calls left open, in order; then
                                                               the run goes on (R26), without the answer that failed
                                                               if one is the last message (R24); note = hidden text
     {op:"abort", id, session}
     {op:"tool_result", session, call, lines:1}                 {content, details?, isError}
     {op:"close", id, session}
     {op:"ping", id}                                            answered at once by a host that is not stuck
   host → control
     {t:"hello", version, pi, node, pid, confinement:{…}}       once, when ready
     {t:"failed", error}                                        in place of hello, from the launcher: Node could not
                                                               be started, and why
     {t:"reply", id, ok, error?}                                to every op with an id; prompt/steer/resume
                                                               reply when accepted, not when finished
     {t:"entry", session, lines:1}                              a line for the log, in order
     {t:"delta", session, kind, index, text}                    kind: message_start | text | thinking_start
                                                               | message_end | discarded
     {t:"tool", session, call, name, lines:1}                   run this tool; input follows
     {t:"tool_cancel", session, call}                           Pi gave up on it (abort)
     {t:"retry", session, attempt, maxAttempts, delayMs, error} Pi asks the model again in delayMs, and is held then
     {t:"settled", session, aborted, error?}                    the run is over and Pi is idle
   Order is kept per session in each direction. The host applies backpressure: it stops reading model
   streams when its socket is full (deltas of one kind and index are merged meanwhile); control stops reading when a
   session's mailbox is full. Invalid surrogates are replaced before a line is sent. Unknown members are ignored;
   an unknown op gets reply ok:false; a malformed line ends the connection. */
/* clang-format on */
#ifndef HARNESS_PROTOCOL_H
#define HARNESS_PROTOCOL_H

#define HOST_ENVELOPE_MAX (1u << 20) /* a system prompt of 100 KiB, each byte escaped, fits */
#define HOST_LINE_MAX (96u << 20)

#endif
