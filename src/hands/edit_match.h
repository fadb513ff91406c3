/* The matching behind the edit tool: finds each old text exactly once in a text with LF line ends,
   tolerantly where Pi is tolerant (NFKC, quotes, dashes, blanks at line ends), and gives the text
   with the replacements. Pure; memory from the arena. Offsets and lengths in bytes. */
#ifndef HANDS_EDIT_MATCH_H
#define HANDS_EDIT_MATCH_H

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

struct edit {
    struct str old_text, new_text;
};

struct replacement {
    size_t at, length; /* in the text before */
    struct str text;
    size_t edit; /* its index, for messages */
};

struct edit_outcome {
    struct str text;                  /* after all replacements */
    struct replacement *replacements; /* sorted, disjoint */
    size_t n;
};

/* CRLF and lone CR become LF. */
struct str edit_to_lf(struct str s, struct arena *a);
/* `content` has LF only. On E_INVALID *out_why is Pi's text for the model; `path` is only named in
 * it. */
err edit_apply(struct str content, const struct edit *edits, size_t n, struct str path,
               struct arena *a, struct edit_outcome *out, struct str *out_why);
/* The same replacements in the text before edit_to_lf: what is not replaced keeps its bytes, new
   line breaks get the line end of their place. */
struct str edit_apply_to_original(struct str original, const struct edit_outcome *outcome,
                                  struct arena *a);
/* Pi's normalizeForFuzzyMatch (for tests). */
struct str edit_normalize(struct str s, struct arena *a);

#endif
