/* clang-format off */
/* The hands protocol: what control says to the pi-hands program inside a sandbox, and hears back. One stream socket
   carries one conversation: connect, send ONE opening frame, read until its last frame, close. Several conversations
   run side by side on several connections. The same frames run over a unix socket (linux), virtio-serial (qemu) and
   the work queue (self-hosted).

   Frame: u32 little-endian length of what follows | u8 type | payload. Length 1 … FRAME_MAX. JSON payloads are UTF-8
   objects; unknown members are ignored (older peers), unknown types answered by FRAME_ERROR.

   Opening frames and what follows:
     HELLO                 → HELLO {version, pid, bootId, uptimeMs}
     PING                  → PONG
     SET_CLOCK {wallMs}    → OK | ERROR
     CALL {key, tool, input, cwd, limits?}
                           A tool call, keyed by the tool call id: the same key again attaches to the first run, it
                           never runs twice. → UPDATE* (bash only: u64 offset + raw bytes of output) → RESULT
     ATTACH {key, offset}  as CALL for a call known to the program; ERROR {code:"unknown_call"} if not
     CANCEL {key}          TERM to the process group, KILL after graceMs (default 1000); the call ends with
                           RESULT {…, "interrupted": true} on its own connection → OK | ERROR
     ACK {key}             the result is durable elsewhere: forget the call → OK (also if unknown)
     EXEC {argv, cwd?, env?, timeoutMs?, pty?: {rows, cols}}
                           A plain process. Then both ways: → STDOUT*, STDERR* (raw) → EXIT {code | signal, timedOut?};
                           ← STDIN (raw; empty payload closes), ← SIGNAL {signal}, ← RESIZE {rows, cols}
   The connection's death does not end a CALL (its result waits for ATTACH); it ends an EXEC (HUP, then KILL).

   RESULT {isError, content: [{type:"text",text} | {type:"image",mimeType,data}], details?, interrupted?, durationMs}:
   what Pi's own tool would have returned, byte for byte (R33, R34, R54). For edit, `details` holds {oldText, newText} of
   the whole file and the host makes diff and patch (R54).
   ERROR {code, message}: code is unknown_call | bad_frame | busy | internal, and of EXEC not_found | cannot_run. */
/* clang-format on */
#ifndef HANDS_FRAMES_H
#define HANDS_FRAMES_H

#include "base/buf.h"
#include "base/err.h"

#include <stdint.h>

#define HANDS_VERSION 1
#define FRAME_MAX (96u << 20)   /* an image of 20 MB as base64, or 64 MiB of output, fits */
#define FRAME_CHUNK (64u << 10) /* largest raw output frame */
#define HANDS_CALLS_MAX 256     /* calls known at once in one sandbox; more is ERROR busy */

enum frame_type {
    FRAME_HELLO = 1,
    FRAME_PING,
    FRAME_PONG,
    FRAME_SET_CLOCK,
    FRAME_OK,
    FRAME_ERROR,
    FRAME_CALL,
    FRAME_ATTACH,
    FRAME_CANCEL,
    FRAME_ACK,
    FRAME_UPDATE,
    FRAME_RESULT,
    FRAME_EXEC,
    FRAME_STDIN,
    FRAME_STDOUT,
    FRAME_STDERR,
    FRAME_SIGNAL,
    FRAME_RESIZE,
    FRAME_EXIT,
    FRAME_TYPE_END
};

/* Blocking; E_CLOSED when the peer left. Not thread-safe per socket and direction. */
err frame_write(int fd, enum frame_type type, struct str payload);
/* Reads one frame; the payload replaces what `out` held. E_INVALID on a bad length or type. */
err frame_read(int fd, enum frame_type *out_type, struct buf *out);
/* Parses a frame from bytes already here (fuzz target, poll loops): true and *out_used when whole;
   false with *out_used 0 when more bytes are needed; err E_INVALID through *out_err when it never
   will be. */
struct frame {
    enum frame_type type;
    struct str payload; /* points into the input */
};
bool frame_parse(struct str bytes, struct frame *out, size_t *out_used, err *out_err);

/* Paths inside the sandbox (ARCHITECTURE: the hands). */
#define SANDBOX_WORKDIR "/workspace"
#define SANDBOX_OUTPUTS "/mnt/session/outputs"
#define SANDBOX_TOOL_OUTPUT "/mnt/session/tool-output"
#define SANDBOX_RG "/.pi/rg"

#endif
