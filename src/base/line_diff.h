/* What differs between two texts, line by line, as the hunks of a unified diff (three lines around
   each). Shortest (Myers) where that can be found with bounded work; where texts have too little in
   common, all that lies between their common beginning and end is replaced. Pure, any thread. */
#ifndef BASE_LINE_DIFF_H
#define BASE_LINE_DIFF_H

#include "base/buf.h"

/* Appends "@@ -1,3 +1,4 @@" and lines; nothing when they are equal. Bytes stay as they are. Memory:
   about 30 bytes a line, and 4 MB. */
void line_diff(struct str before, struct str after, struct buf *out);

#endif
