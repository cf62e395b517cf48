# Writes a file of words of 4 bytes, little endian, as numbers of C: cmake -DINPUT=... -DOUTPUT=... -P words.cmake
file(READ ${INPUT} hex HEX)
string(REGEX REPLACE "(..)(..)(..)(..)" "0x\\4\\3\\2\\1,\n" words "${hex}")
file(WRITE ${OUTPUT} "${words}")
