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
     COPY_OUT {root, only?, contents?, changes?, before?, filesOnly?, entries, bytes, fileBytes?}
                           What is in a folder (R38: links are not followed, nothing but regular files is opened, other
                           mounts are left alone), in the order of paths, a folder before what is in it. → for each
                           entry COPY_ENTRY, COPY_OLD* (raw: content before), COPY_DATA* (raw: content now),
                           COPY_DONE {u8 trouble now, u8 trouble before}; at the end COPY_END. PONG when there was
                           nothing to tell for a second. `changes`: only what differs from the image.
                           `entries`, `bytes`: it ends there. `fileBytes`: larger ones come without content.
   The connection's death does not end a CALL (its result waits for ATTACH); it ends an EXEC (HUP, then KILL) and
   a COPY_OUT.

   COPY_ENTRY, numbers little-endian: u8 change | u8 type now | u8 type before | u8 0 | u32 mode now | u32 mode before |
   u32 length of the path | u32 of the target now | u32 of the target before | u64 size now | u64 size before |
   i64 mtime now | i64 mtime before | i64 ctime now | i64 ctime before (ns) | path | target now | target before.
   COPY_END {leftOut, truncated}. Changes, types and troubles are those of the enums in sandbox/copyout.h.

   RESULT {isError, content: [{type:"text",text} | {type:"image",mimeType,data}], details?, interrupted?, durationMs}:
   what Pi's own tool would have returned, byte for byte (R33, R34, R54). For edit, `details` holds {oldText, newText} of
   the whole file and the host makes diff and patch (R54).
   ERROR {code, message}: code is unknown_call | bad_frame | busy | internal, of EXEC not_found | cannot_run, and of
   COPY_OUT not_a_folder | no_image. */
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
    FRAME_COPY_OUT,
    FRAME_COPY_ENTRY,
    FRAME_COPY_OLD,
    FRAME_COPY_DATA,
    FRAME_COPY_DONE,
    FRAME_COPY_END,
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
/* For conversations with short frames: E_INVALID as soon as the one that begins here claims to hold
   more, so that nobody waits for it, or holds what came of it. */
err frame_check_payload(struct str bytes, uint32_t max);
/* Appends a whole frame to what is to be sent. */
void frame_add(struct buf *out, enum frame_type type, struct str payload);

/* COPY_OUT */
#define COPY_ENTRY_BYTES 72   /* before the path */
#define COPYOUT_PATH_MAX 4095 /* bytes of a path below the root, and of a link's target */
#define COPYOUT_DEPTH_MAX 128 /* folders deeper than this are left out */

enum copyout_change {
    COPYOUT_AS_IS, /* nothing was compared */
    COPYOUT_ADDED,
    COPYOUT_CHANGED,
    COPYOUT_REMOVED,
    COPYOUT_CHANGE_END
};

enum copyout_type {
    COPYOUT_NONE, /* nothing there: the other side of what was added or removed */
    COPYOUT_FILE,
    COPYOUT_FOLDER,
    COPYOUT_LINK,
    COPYOUT_OTHER, /* fifo, socket, device: told, never opened */
    COPYOUT_TYPE_END
};

/* Why content is not, or not exactly, what its size promised. */
enum copyout_trouble {
    COPYOUT_FINE,
    COPYOUT_MOVED,     /* it changed while it was read: not more than its size came, maybe mixed */
    COPYOUT_REFUSED,   /* cannot be opened or read */
    COPYOUT_TOO_LARGE, /* over fileBytes: nothing came */
    COPYOUT_TROUBLE_END
};

/* Paths inside the sandbox (ARCHITECTURE: the hands). */
#define SANDBOX_WORKDIR "/workspace"
#define SANDBOX_OUTPUTS "/mnt/session/outputs"
#define SANDBOX_TOOL_OUTPUT "/mnt/session/tool-output"
#define SANDBOX_RG "/.pi/rg"
/* What a person's terminal runs there, by /bin/sh -c. */
#define SANDBOX_SHELL "if command -v bash >/dev/null 2>&1; then exec bash -l; else exec sh -l; fi"

#endif
