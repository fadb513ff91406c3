/* pi-hands, carried inside our binary: put into every sandbox as a sealed memory file. */
    .section .rodata.hands, "a", @progbits
    .balign 16
    .global hands_blob_start, hands_blob_end
    .type hands_blob_start, @object
    .type hands_blob_end, @object
hands_blob_start:
    .incbin HANDS_PATH
hands_blob_end:
    .size hands_blob_start, hands_blob_end - hands_blob_start
    .section .note.GNU-stack, "", @progbits
