/* clang-format off */
/* Control ↔ broker: length-prefixed JSON over the stream socket the parent gave both (PARENT_NOTE_LINK).
   Frame: u32 little-endian length | UTF-8 JSON object, at most BROKER_FRAME_MAX. Members beyond those
   listed are ignored. "op" names the message.

   control → broker
     session_open    {token, tenant, session, provider, model, api, baseUrl, custom: bool, sealed: base64|null}
                     Registers a 256-bit token (hex) at the gateway. Sent again for all open sessions after a broker
                     start. Requests with an unknown token, or on another tenant's gateway socket, get 401; a token that
                     is not known yet is waited for, as a request may overtake this message.
     session_close   {token}
     request_go      {request, number}                 the span start is durable: dial
     request_hold    {request, ms}                     not yet: go or refuse comes in so many milliseconds (backoff, R24)
     request_refuse  {request, status, code, detail}   the host gets that as the upstream's answer (budget, R27)
     request_cancel  {session}                         interrupt: close the upstream connections of this session's
                                                       requests that were told to go
     credential_check {check, tenant, session: the credential's id, provider, model, api, baseUrl, custom: bool,
                      sealed: base64}                 §8.5 validate: try the key where such a session would send it
   broker → control
     hello           {version}
     request_begin   {request, session, bytes, inputTokens, said}
                                                       a request arrived and passed the token check; inputTokens is
                                                       what it may hold, an estimate; said: how many messages its host
                                                       had sent to control before it (0: the host did not tell)
     request_end     {request, session, status, ttftMs|null, durationMs, aborted: bool,
                      usage: {inputTokens, outputTokens, cacheReadInputTokens, cacheCreationInputTokens,
                              estimated?: true} | null,
                      error: {code, message, unrecoverable: bool} | null, holding?: true, retryAfterMs?}
                     R24: error.code is one of model_unreachable, model_rejected_key, model_no_credit, model_not_found,
                     model_rate_limited, model_overloaded, model_bad_request, model_stream_broken,
                     credential_missing, credential_refused, address_not_allowed.
                     holding: this attempt failed, the host has got nothing, and the request waits for control's word:
                     go makes another attempt, refuse ends it. retryAfterMs: what the provider asks for.
     credential_checked {check, verdict: valid|invalid|unknown, reason}
                     One for each credential_check, unless the link breaks; the reason is for people, "" if valid.

   The broker waits for request_go at most 30 s, then answers the host 424 (its own answers never carry a status that a
   provider SDK or Pi would retry by itself). Every request_begin is followed by one last request_end, refused
   ones too, unless the link breaks. status is what the host got, 0 if it got none. */
/* clang-format on */
#ifndef BROKER_PROTOCOL_H
#define BROKER_PROTOCOL_H

#define BROKER_FRAME_MAX (1u << 20)
#define BROKER_TOKEN_HEADER "x-pi-session"
#define BROKER_SAID_HEADER "x-pi-said"

#endif
