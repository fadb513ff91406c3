/* A file on its way in: a multipart body whose content goes to the object store as it comes (§21).
   The state is ctx->upload between file_upload's functions and the handler; worker threads, one
   after the other. */
#ifndef API_FILE_UPLOAD_H
#define API_FILE_UPLOAD_H

#include "api/file_rows.h"
#include "http/http.h"

extern const struct upload file_upload;

/* For the handler, once: ends the object and fills *out, strings in the request's arena. E_INVALID
   when the parts are not what they should be. Afterwards the object is the caller's: to be given a
   row or removed. */
err file_upload_finish(struct ctx *ctx, struct file_row *out);

/* What a file may be called here: the last part of the path, at most 255 bytes, no control
   characters, never empty or `.` or `..`. */
const char *file_name_clean(struct arena *a, struct str name);

#endif
